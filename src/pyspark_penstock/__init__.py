"""Topics as DataFrames: the format `penstock`, which Spark finds by this package's name.

Importing this is light and never fails: Spark imports every `pyspark_*` package to look for sources, and one that fails
hides all the others. What a source needs is imported when it is used.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from pyspark_penstock.source import DefaultSource
        except ImportError as error:
            raise AttributeError(f"the format penstock needs pyspark 4.2 or later: {error}") from error
        return DefaultSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
