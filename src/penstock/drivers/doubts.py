"""Logs that may not be what they were: of partitions whose broker drew a new log generation since they were last in step.

After a power cut a log may hold, above its recovery point, records from before a truncation beside records from after it, each
whole and with the offsets one expects: files are not written back in the order of their writes, so no check of the log itself finds that. A
replica that comes back so must be cut to its recovery point before it follows; one that is made leader all the same stays as it is.

Bytes: `.penstock-doubts` in the first log directory: the generation, then `topic-partition offset` a line, the recovery point that the log
had when it came into doubt. Written whole and synced. A crash leaves doubts that are settled already, and they are settled again.

Order: the cut first, then the file without it, on disk, and only then a role. A log that leads or is in sync while the file still
names it would be cut once more after a kill, below what was acknowledged meanwhile, and it is trusted. `drivers/replicas` keeps this order, the file
being written on a thread while the request that gives the role waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage.checkpoints import write_atomically

FILE_NAME = ".penstock-doubts"


class Doubts:
    def __init__(self, files: Files, directory: str, generation: str, logs: Mapping[TopicPartition, int]) -> None:
        """`logs` are those on disk with their recovery points: all of them are in doubt in a generation that is new here.

        One that is not there stays in doubt: its directory may be offline, and come back.
        """
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._generation = generation
        known = self._read()
        self._open = dict(logs) if known is None else known
        if known is None:
            self._frozen()()

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._open

    def __len__(self) -> int:
        return len(self._open)

    def offset(self, topic_partition: TopicPartition) -> int:
        """Up to where a log in doubt is what it was."""
        return self._open[topic_partition]

    def settle(self, partitions: Iterable[TopicPartition]) -> Callable[[], None] | None:
        """They were cut, or will lead: a job for a thread that writes so; None where none was in doubt.

        One job at a time: the caller waits for its end. Where it fails they are in doubt as before.
        """
        settled = {key: self._open.pop(key) for key in list(partitions) if key in self._open}
        if not settled:
            return None
        write = self._frozen()

        def job() -> None:
            try:
                write()
            except BaseException:
                self._open.update(settled)
                raise

        return job

    def _read(self) -> dict[TopicPartition, int] | None:
        try:
            generation, *lines = self._files.read(self._path).decode().splitlines()
            if generation != self._generation:
                return None
            known = {}
            for line in lines:
                name, _, offset = line.rpartition(" ")
                topic, _, number = name.rpartition("-")
                known[TopicPartition(topic, int(number))] = int(offset)
        except (FileNotFoundError, UnicodeDecodeError, ValueError):
            return None
        return known

    def _frozen(self) -> Callable[[], None]:
        named = [f"{topic}-{number} {offset}" for (topic, number), offset in sorted(self._open.items())]
        data = "".join(f"{line}\n" for line in (self._generation, *named)).encode()
        return partial(write_atomically, self._files, self._path, data)
