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
_LOADED = re.compile(r"Loaded (\d+) logs in (\d+)\s?ms")
_STARTED = re.compile(r"\[KafkaServer id=\d+\] started|\[KafkaRaftServer nodeId=\d+\] Kafka Server started")
_CLEANED = re.compile(
    r"Log cleaner (?:thread )?\d+ cleaned log (\S+) \(dirty section = \[(\d+), ?(\d+)\]\)\s+"
    r"([\d,.]+) MB of log processed in ([\d,.]+) seconds"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a broker.

    `loading_ms` is the time Kafka took to open its logs, recovery included; `total_ms` runs from before the JVM.
    """

    logs: int
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
    began, loaded, was_clean = None, None, True
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(_MARK):
            began, loaded, was_clean = datetime.fromisoformat(line.removeprefix(_MARK)), None, True
        parts = _LINE.match(line)
        if parts is None or began is None:
            continue
        when, message = datetime.fromisoformat(parts[1]), parts[5]
        if "no clean shutdown file was found" in message:
            was_clean = False
        elif match := _LOADED.search(message):
            loaded = match
        elif _STARTED.search(message) and loaded is not None:
            total_ms = round((when - began).total_seconds() * 1000)
            found.append(Start(logs=int(loaded[1]), loading_ms=int(loaded[2]), total_ms=total_ms, was_clean=was_clean))
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
