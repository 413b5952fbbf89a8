"""What Spark says, in one sentence: its errors carry plans, traces of two languages and codes around the thing itself."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^(?:Caused by)?: ([\w.$]+(?:Error|Exception)(?:: .+)?)$", re.MULTILINE)
_CODE = re.compile(r"^\s*\[[\w.]+\]\s*")
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*\Z", re.DOTALL)
_LAST_WORDS = re.compile(r"Application has been killed\. Reason: (.+)|^Exception in thread \"main\" [\w.$]+: (.+)", re.MULTILINE)  # fmt: skip
_WRAPPERS = ("PythonException", "Py4JJavaError", "StreamingQueryException", "SparkException", "PySparkRuntimeError", "SystemError")  # fmt: skip
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.+?)\s*SQLSTATE", re.DOTALL)

LASTING = (
    "AnalysisException",
    "BadRowError",
    "CheckpointError",
    "ConfigError",
    "DataLossError",
    "IncompatibleClassChangeError",
    "NoClassDefFoundError",
    "NoSuchMethodError",
    "PayloadError",
    "RolledBackError",
    "UnknownTopicError",
    "USER_RAISED_EXCEPTION",
)
"""Errors that another try meets again."""


class _NoTraceOfTheGateway(logging.Filter):
    """Py4J logs one, to nobody's logger in particular, when a JVM that is gone is called."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).endswith("while sending command.")


@contextmanager
def without_walls() -> Iterator[None]:
    """PySpark prints errors of analysis with their plan and traces before anybody could put them into a sentence; not here."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    kept = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    filtered = _NoTraceOfTheGateway()  # one for each block: they stand in one another
    logging.getLogger().addFilter(filtered)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(filtered)
        for logger, was_disabled in zip(loggers, kept, strict=True):
            logger.disabled = was_disabled


def sentence(error: BaseException | str) -> str:
    """The innermost cause that a person can do something about."""
    text = error if isinstance(error, str) else str(error)
    raised = _RAISED.search(text)
    if raised:
        return raised[1]
    causes = [(name, said) for name, said in _PYTHON_ERROR.findall(text) if name not in _WRAPPERS]
    if causes:
        name, said = causes[-1]
        return _plain(said) if name in LASTING or name.startswith("Unreachable") else f"{name}: {_plain(said)}"
    java = _JAVA_ERROR.findall(text)
    if java and text.startswith("An error occurred while calling"):
        return _plain(java[-1])
    first = _plain(text)
    return first or type(error).__name__


def last_words(printed: bytes) -> str:
    """Why a JVM gave up, from what it printed: its caller is told only that it is gone. Nothing where it does not say."""
    found = _LAST_WORDS.findall(printed.decode(errors="replace"))
    return _plain("".join(found[-1])) if found else ""


def is_lasting(error: BaseException | str) -> bool:
    """Whether there is no point in starting again."""
    text = f"{type(error).__name__}: {error}"
    return any(name in text for name in LASTING)


def _plain(text: str) -> str:
    text = _TAIL.sub("", _CODE.sub("", text.strip()))
    return " ".join(text.partition("\n")[0].split()).rstrip(".")
