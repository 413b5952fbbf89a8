"""Logs that may not be what they were: of partitions whose broker drew a new log generation since they were last in step.

After a power cut a log may hold, above its recovery point, records from before a truncation beside records from after it, each
whole and with the offsets one expects: files are not written back in the order of their writes, so no check of the log itself finds that. A
replica that comes back so must be cut to its recovery point before it follows; one that is made leader all the same stays as it is.

Bytes: `.penstock-doubts` in the first log directory: the generation, then `topic-partition` a line. Written whole and synced. A crash
leaves doubts that are settled already, and they are settled again.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.storage.checkpoints import write_atomically

FILE_NAME = ".penstock-doubts"


class Doubts:
    def __init__(self, files: Files, directory: str, generation: str, logs: Iterable[TopicPartition]) -> None:
        """`logs` are those on disk: all of them are in doubt in a generation that is new here."""
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._generation = generation
        known = self._read()
        self._open = set(logs) if known is None else known & set(logs)
        if known is None:
            self._write()

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._open

    def __len__(self) -> int:
        return len(self._open)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """They were cut, or lead."""
        settled = self._open.intersection(partitions)
        if settled:
            self._open -= settled
            self._write()

    def _read(self) -> set[TopicPartition] | None:
        try:
            generation, *lines = self._files.read(self._path).decode().splitlines()
        except (FileNotFoundError, UnicodeDecodeError, ValueError):
            return None
        if generation != self._generation:
            return None
        pairs = [line.rpartition("-") for line in lines]
        return {TopicPartition(topic, int(number)) for topic, _, number in pairs}

    def _write(self) -> None:
        lines = [self._generation, *(f"{topic}-{number}" for topic, number in sorted(self._open))]
        write_atomically(self._files, self._path, "".join(f"{line}\n" for line in lines).encode())
