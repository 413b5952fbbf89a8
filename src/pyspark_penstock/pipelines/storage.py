"""A pipeline's storage: one run at a time, and what the last one said of itself.

lock             held by a run, a lock of the system: it goes with the process, however that ends
progress.json    replaced whole while a run goes on, so that a reader never sees half of it
spark.log        what the JVM and its workers print
checkpoints/     Spark's, one a flow, unless the pipeline keeps them elsewhere
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.base.errors import DirectoryLockedError
from penstock.base.files import SystemFiles
from pyspark_penstock.pipelines.flows import KILLED, OVER, FlowStatus
from pyspark_penstock.pipelines.model import PipelineError

LOCK, PROGRESS = "lock", "progress.json"
UNKNOWN_PROCESS = 0
"""What the system says of a holder on another machine, or in another container."""

# The system's `struct flock`.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi4x")
_FLOCK_FIELDS = (
    ("start", "length", "process", "type", "whence")
    if sys.platform == "darwin"
    else ("type", "whence", "start", "length", "process")
)
_ASKED = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": 0, "length": 0, "process": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run as it was when it last wrote. Whether it still runs is asked of the lock: a run that was killed could not say so."""

    process_id: int
    spark_ui: str
    updated_ms: int
    is_running: bool
    next_process_id: int | None
    """Of a run that has begun and not written yet; what stands here then tells of the one before it."""
    flows: tuple[FlowStatus, ...]

    @property
    def was_killed(self) -> bool:
        return any(flow.state == KILLED for flow in self.flows)


@contextmanager
def holding(storage: Path) -> Iterator[None]:
    """The storage, for one run at a time; it is made if it is not there."""
    storage.mkdir(parents=True, exist_ok=True)
    try:
        lock = SystemFiles().lock(str(storage / LOCK))
    except DirectoryLockedError:
        who = f" (process {holder})" if (holder := holder_of(storage)) else ""
        raise PipelineError(f"{storage} is in use by another run of this pipeline{who}: one at a time") from None
    try:
        yield
    finally:
        lock.release()


def write_progress(storage: Path, pipeline: str, spark_ui: str, updated_ms: int, flows: Sequence[FlowStatus]) -> None:
    content = {
        "pipeline": pipeline,
        "process_id": os.getpid(),
        "spark_ui": spark_ui,
        "updated_ms": updated_ms,
        "flows": [asdict(flow) for flow in flows],
    }
    new = storage / f"{PROGRESS}.new"
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(storage / PROGRESS)


def read_status(storage: Path) -> RunStatus | None:
    """None where no run has written anything."""
    before = holder_of(storage)
    known = _load(storage)
    if known is None:
        return None
    after = holder_of(storage)
    holder = before if after is None else after  # a run may begin, or write its last and let go, between the two
    try:
        process_id = int(known["process_id"])
        is_running = holder in (process_id, UNKNOWN_PROCESS)
        flows = tuple(FlowStatus(**flow) for flow in known["flows"])
        return RunStatus(
            process_id=process_id,
            spark_ui=known["spark_ui"],
            updated_ms=known["updated_ms"],
            is_running=is_running,
            next_process_id=None if is_running else holder,
            flows=flows if is_running else tuple(map(_ended, flows)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"{storage / PROGRESS} is not what a run writes: {error!r}") from None


def _ended(flow: FlowStatus) -> FlowStatus:
    """Nobody is there any more who could say how it ended."""
    return flow if flow.state in OVER else replace(flow, state=KILLED)


def _load(storage: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((storage / PROGRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PipelineError(f"{storage / PROGRESS} is not what a run writes: {error}") from None
    if not isinstance(found, dict):
        raise PipelineError(f"{storage / PROGRESS} is not what a run writes: {found!r}")
    return found


def holder_of(storage: Path) -> int | None:
    """The process that holds the lock. Asks the system and takes nothing: a run that starts at this moment is not in the way."""
    asked = _FLOCK.pack(*(_ASKED[name] for name in _FLOCK_FIELDS))
    try:
        with (storage / LOCK).open("rb") as file:
            answer = dict(zip(_FLOCK_FIELDS, _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked)), strict=True))
    except FileNotFoundError:
        return None
    return None if answer["type"] == fcntl.F_UNLCK else max(answer["process"], UNKNOWN_PROCESS)
