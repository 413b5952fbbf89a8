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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.base.errors import DirectoryLockedError
from penstock.base.files import SystemFiles
from pyspark_penstock.pipelines.flows import FlowStatus
from pyspark_penstock.pipelines.model import PipelineError

LOCK, PROGRESS = "lock", "progress.json"

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
    """A run as it was when it last wrote; `is_running` is asked of the lock."""

    pipeline: str
    process_id: int
    spark_ui: str
    updated_ms: int
    is_running: bool
    flows: tuple[FlowStatus, ...]


@contextmanager
def holding(storage: Path) -> Iterator[None]:
    """The storage, for one run at a time; it is made if it is not there."""
    storage.mkdir(parents=True, exist_ok=True)
    try:
        lock = SystemFiles().lock(str(storage / LOCK))
    except DirectoryLockedError:
        known = _load(storage)
        who = f" (process {known['process_id']})" if known else ""
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
    """None where no run has been."""
    known = _load(storage)
    if known is None:
        return None
    flows = tuple(FlowStatus(**flow) for flow in known.pop("flows"))
    return RunStatus(**known, is_running=_is_held(storage), flows=flows)


def _load(storage: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((storage / PROGRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PipelineError(f"{storage / PROGRESS} is not what a run writes: {error}") from None
    assert isinstance(found, dict)
    return found


def _is_held(storage: Path) -> bool:
    """Asks the system about the lock and takes nothing: a run that starts at this moment is not in the way."""
    asked = _FLOCK.pack(*(_ASKED[name] for name in _FLOCK_FIELDS))
    with (storage / LOCK).open("rb") as file:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[_FLOCK_FIELDS.index("type")] != fcntl.F_UNLCK)
