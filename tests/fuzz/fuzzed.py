"""Coverage-guided fuzzing with atheris, in a process of its own: `python -m tests.fuzz.fuzzed frames|batches OPTIONS CORPUS`.

Every module of Penstock runs from its source here, compiled or not, so that atheris sees the branches that an input takes. What is
not a declared error ends the process with a trace, and the input is left in a file.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType

import atheris

MEMORY_BYTES_MAX = 2 << 30


class _Sources:
    """Finds the .py of a module also where a compiled one stands beside it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("penstock.") or path is None:
            return None
        source = Path(next(iter(path))) / f"{name.rpartition('.')[2]}.py"
        return importlib.util.spec_from_file_location(name, source) if source.exists() else None


def _frames() -> Callable[[bytes], None]:
    """A frame as it came from a socket: an answer or a declared error, and the neighbour is answered as ever."""
    from penstock.handlers.api import CloseConnectionError
    from penstock.protocol.errors import MalformedMessageError
    from tests.support.forgetful_files import ForgetfulFiles
    from tests.unit.handlers.world import World

    files = ForgetfulFiles()
    files.make_directory("/data")
    world = World(Path("/data"), files=files, log_index_size_max_bytes="1024", offsets_topic_num_partitions="1")
    world.create_topic("t", 2)

    def one(data: bytes) -> None:
        try:
            world.send_frame(data)
            world.loop.turn()
        except (MalformedMessageError, CloseConnectionError):
            return
        assert world.send(18, 3, client_software_name="n", client_software_version="1").is_there

    return one


def _batches() -> Callable[[bytes], None]:
    """Records as a client sent them: refused with a declared error, or taken, read back and taken by a follower too."""
    from penstock.base.errors import PenstockError
    from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD, crc32c, scan
    from penstock.storage.append import prepare_follower, prepare_leader
    from penstock.storage.config import log_config
    from penstock.storage.producer_state import Origin

    configs = [log_config(values, {}) for values in ({}, {"cleanup.policy": "compact"}, {"compression.type": "gzip"})]

    def one(data: bytes) -> None:
        if len(data) > HEADER_BYTES:  # no mutation finds a CRC
            size, crc = len(data) - LOG_OVERHEAD, crc32c(data, 21)
            data = data[:8] + size.to_bytes(4, "big") + data[12:17] + crc.to_bytes(4, "big") + data[21:]
        for config in configs:
            try:
                prepared = prepare_leader(data, config, Origin.CLIENT, 1_700_000_000_000)
            except PenstockError:
                continue
            taken = bytes(prepared.data)
            assert [batch.size_bytes for batch in scan(taken).batches] == [one.size_bytes for one in prepared.batches]
            prepare_follower(taken, 0)

    return one


def _functions() -> Iterator[FunctionType]:
    """Penstock's own: to instrument every library takes a minute."""
    for name, module in list(sys.modules.items()):
        if name.startswith("penstock."):
            for value in list(vars(module).values()):
                members = vars(value).values() if isinstance(value, type) else (value,)
                for member in members:
                    function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        yield function


TARGETS = {"frames": _frames, "batches": _batches}


def main() -> None:
    # atheris's own limit counts the parent's memory too: the kernel hands it on when a process starts another.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    sys.meta_path.insert(0, _Sources())
    logging.disable()
    target = TARGETS[sys.argv.pop(1)]()
    for function in _functions():
        atheris.instrument_func(function)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
