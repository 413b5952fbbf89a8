"""Logs that may not be what they were: of partitions whose broker drew a new log generation since they were last in step.

After a power cut a log may hold, above its recovery point, records from before a truncation beside records from after it, each
whole and with the offsets one expects: files are not written back in the order of their writes, so no check of the log itself finds that. A
replica that comes back so must be cut to its recovery point before it follows; one that is made leader all the same stays as it is.

Bytes: `.penstock-doubts` in each log directory, about the logs in it: the generation, then `topic-partition offset` a line, the recovery
point that the log had when it came into doubt. Written whole and synced. A crash leaves doubts that are settled already, and they are settled
again. A directory that is offline keeps its own until it is back.

Order: the cut first, then the file without it, on disk, and only then a role. A log that leads or is in sync while the file still
names it would be cut once more after a kill, below what was acknowledged meanwhile, and it is trusted. `drivers/replicas` keeps this order, the file
being written on a thread while the request that gives the role waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage.checkpoints import write_atomically
from penstock.storage.directory_state import DirectoryState

FILE_NAME = ".penstock-doubts"

Offsets = dict[TopicPartition, int]


class Doubts:
    def __init__(
        self, files: Files, generation: str, directories: Iterable[tuple[DirectoryState, Mapping[TopicPartition, int]]]
    ) -> None:
        """`directories` are those online, each with its logs and their recovery points: all of them are in doubt in a
        generation that is new there."""
        self._files = files
        self._generation = generation
        self._open: dict[DirectoryState, Offsets] = {}
        for state, logs in directories:
            generation, known = self._read(state)
            if generation == self._generation:
                still = {key: known[key] for key in logs if key in known}
            else:
                still = {key: min(offset, known.get(key, offset)) for key, offset in logs.items()}
            self._open[state] = still
            if generation != self._generation or still != known:
                self._write(state, still)

    def __contains__(self, topic_partition: object) -> bool:
        return any(topic_partition in still for still in self._online().values())

    def __len__(self) -> int:
        return sum(map(len, self._online().values()))

    def offset(self, topic_partition: TopicPartition) -> int:
        """Up to where a log in doubt is what it was."""
        return next(still[topic_partition] for still in self._online().values() if topic_partition in still)

    def _online(self) -> dict[DirectoryState, Offsets]:
        """What lies in a directory that failed gets no role: a partition of that name is another one's, in another directory."""
        return {state: still for state, still in self._open.items() if state.health.failure is None}

    def settle(self, partitions: Iterable[TopicPartition]) -> Callable[[], None] | None:
        """They were cut, or will lead: a job for a thread that writes so; None where none was in doubt.

        One job at a time: the caller waits for its end. Where it fails they are in doubt as before, and the directory goes offline.
        """
        keys = list(partitions)
        left: dict[DirectoryState, Offsets] = {}
        for state, still in self._online().items():
            if any(key in still for key in keys):
                left[state] = {key: offset for key, offset in still.items() if key not in keys}
        if not left:
            return None

        def job() -> None:
            for state, still in left.items():
                try:
                    self._write(state, still)
                except OSError as error:
                    raise state.health.fail(error) from error
                self._open[state] = still

        return job

    def _read(self, state: DirectoryState) -> tuple[str, Offsets]:
        try:
            generation, *lines = self._files.read(f"{state.path}/{FILE_NAME}").decode().splitlines()
            known = {}
            for line in lines:
                name, _, offset = line.rpartition(" ")
                topic, _, number = name.rpartition("-")
                known[TopicPartition(topic, int(number))] = int(offset)
        except (FileNotFoundError, UnicodeDecodeError, ValueError):
            return "", {}
        return generation, known

    def _write(self, state: DirectoryState, offsets: Offsets) -> None:
        named = [f"{topic}-{number} {offset}" for (topic, number), offset in sorted(offsets.items())]
        data = "".join(f"{line}\n" for line in (self._generation, *named)).encode()
        write_atomically(self._files, f"{state.path}/{FILE_NAME}", data)
