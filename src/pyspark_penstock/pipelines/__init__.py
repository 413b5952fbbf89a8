"""Pipelines: sources, transforms, expectations and sinks in one file, run by Structured Streaming.

`Pipeline` describes one in Python; `penstock pipeline` runs files, in YAML or in Python. Importing this starts no Spark.
"""

from pyspark_penstock.pipelines.builder import Pipeline

__all__ = ["Pipeline"]
