"""Reads what Apache Kafka says in its log about its start, its recovery and its cleaner.

The lines are those of slf4j-simple with a time stamp, as `kafka_jvm` configures it.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SLF4J_FLAGS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.logFile=System.err",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)

_MARK = "# start "
_LINE = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) \[(.*?)\] (\w+) (\S+) - (.*)$")
_LOADED_ONE = re.compile(
    r"Completed load of Log\(dir=.*, topic=(\S+), partition=(\d+), .*logStartOffset=(\d+), logEndOffset=(\d+)\)"
    r" with (\d+) segments, .* in (\d+)ms"
)
_LOADED_ALL = re.compile(r"Loaded (\d+) logs in (\d+)\s?ms(?: \(unclean log dirs = \w+\((.*)\)\))?")
_STARTED = re.compile(r"\[KafkaServer id=\d+\] started|\[KafkaRaftServer nodeId=\d+\] Kafka Server started")
_CLEANED = re.compile(
    r"Log cleaner (?:thread )?\d+ cleaned log (\S+) \(dirty section = \[(\d+), ?(\d+)\]\)\s+"
    r"([\d,.]+) MB of log processed in ([\d,.]+) seconds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """One partition's log as the broker held it when it had opened it and written nothing yet."""

    start_offset: int
    end_offset: int
    segments: int
    loading_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a broker, its logs by `topic-partition`.

    `loading_ms` is the time Kafka took to open its logs, recovery included; `total_ms` runs from before the JVM.
    """

    logs: dict[str, LoadedLog]
    loading_ms: int
    total_ms: int
    was_clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """One pass of the cleaner over one partition."""

    partition: str
    base_offset: int
    end_offset: int
    read_mb: float
    seconds: float


def mark_start(log: Path) -> None:
    """Notes in the log that a JVM is about to start; `starts` counts from there."""
    with log.open("a") as sink:
        sink.write(f"{_MARK}{datetime.now().isoformat(timespec='milliseconds')}\n")  # noqa: DTZ005 as slf4j-simple


def starts(log: Path) -> list[Start]:
    """Every completed start that the log tells of, oldest first."""
    found: list[Start] = []
    began, logs, loaded = None, dict[str, LoadedLog](), None
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(_MARK):
            began, logs, loaded = datetime.fromisoformat(line.removeprefix(_MARK)), {}, None
        parts = _LINE.match(line)
        if parts is None or began is None:
            continue
        message = parts[5]
        if match := _LOADED_ONE.search(message):
            start_offset, end_offset, segments, loading_ms = map(int, match.group(3, 4, 5, 6))
            logs[f"{match[1]}-{match[2]}"] = LoadedLog(
                start_offset=start_offset, end_offset=end_offset, segments=segments, loading_ms=loading_ms
            )
        elif match := _LOADED_ALL.search(message):
            loaded = match
        elif _STARTED.search(message) and loaded is not None:
            assert int(loaded[1]) == len(logs), "a log was loaded of which nothing was said"
            total_ms = round((datetime.fromisoformat(parts[1]) - began).total_seconds() * 1000)
            found.append(Start(logs=logs, loading_ms=int(loaded[2]), total_ms=total_ms, was_clean=not loaded[3]))
            began = None
    return found


def cleanings(log: Path) -> list[Cleaning]:
    """Every pass of the cleaner that the log tells of, oldest first."""
    return [
        Cleaning(
            partition=match[1],
            base_offset=int(match[2]),
            end_offset=int(match[3]),
            read_mb=float(match[4].replace(",", "")),
            seconds=float(match[5].replace(",", "")),
        )
        for match in _CLEANED.finditer(log.read_text(errors="replace"))
    ]
