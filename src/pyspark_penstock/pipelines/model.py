"""What a pipeline is, read from a file and not yet touched by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.base.errors import PenstockError

Action = Literal["warn", "drop", "fail"]
SinkKind = Literal["topic", "parquet", "delta", "iceberg", "console"]

ACTIONS: tuple[Action, ...] = ("warn", "drop", "fail")
SINK_KINDS: tuple[SinkKind, ...] = ("topic", "parquet", "delta", "iceberg", "console")
PAYLOADS = ("raw", "json", "avro", "protobuf")
OUTPUT_MODES: Mapping[SinkKind, tuple[str, ...]] = {
    "topic": ("append", "complete"),
    "parquet": ("append",),
    "delta": ("append", "complete"),
    "iceberg": ("append", "complete"),
    "console": ("append", "update", "complete"),
}
"""What Spark takes for each: it has no updates for sinks written in Python."""
AVAILABLE_NOW = "available_now"
BAD = "_bad"
"""Behind a source's name: the view of its records that could not be decoded."""


class PipelineError(PenstockError):
    """Something about a pipeline that a person has to set right; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that rows should meet: those that do not are counted, and kept, dropped, or end the flow."""

    name: str
    condition: str
    action: Action = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """How a record's value becomes columns."""

    format: str = "raw"
    schema: str = ""
    """JSON: columns as DDL. Avro and Protobuf: a file, or empty where a registry has it."""
    registry: str = ""
    """A registry's address, or a directory of schemas by id; set: values begin with Confluent's five bytes."""
    subject: str = ""
    """In the registry; default: the topic's name and -value."""
    message: str = ""
    """Protobuf: the message's full name; default: the file's first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A topic, or files; `options` are those of the format."""

    name: str
    format: str
    options: Mapping[str, str]
    is_stream: bool = True
    schema: str = ""
    """Of files."""
    payload: Payload = field(default_factory=Payload)
    watermark: Watermark | None = None
    expectations: tuple[Expectation, ...] = ()

    @property
    def is_topic(self) -> bool:
        return self.format == "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """SQL over the views above it, or a function whose parameters are named for them."""

    name: str
    sql: str = ""
    function: Callable[..., Any] | None = None
    inputs: tuple[str, ...] = ()
    watermark: Watermark | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """One flow: a view, written to one place, with a checkpoint of its own."""

    name: str
    view: str
    kind: SinkKind
    target: str
    """A topic, a path or a table; nothing for the console."""
    options: Mapping[str, str]
    output_mode: str = "append"
    key: str = ""
    """An expression, for topics."""
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    name: str
    storage: Path
    """On the driver's machine: the lock, the progress, Spark's output, and the checkpoints if nothing else is said."""
    checkpoints: str
    trigger: str
    """AVAILABLE_NOW, or an interval."""
    restarts_max: int
    settings: Mapping[str, str]
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]

    @property
    def is_available_now(self) -> bool:
        return self.trigger == AVAILABLE_NOW

    @property
    def spark_output(self) -> Path:
        return self.storage / "spark.log"
