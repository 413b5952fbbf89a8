"""What a request with several partitions waits for: each of them, one by one, is done or has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.purgatory.purgatory import Operation
from penstock.replication.partition import Partition


class Awaited(Protocol):
    @property
    def partition(self) -> Partition: ...


A = TypeVar("A", bound=Awaited)


class WaitForPartitions(Operation[TopicPartition], Generic[A]):
    """`answer` is called once, when nothing is open any more or time is over. Holds offsets, never the request's bytes."""

    __slots__ = ("_answer", "_open", "errors", "timed_out")

    def __init__(self, awaited: Iterable[A], answer: Callable[[Any], object]) -> None:
        """`answer` gets this."""
        super().__init__()
        self._open = {one.partition.topic_partition: one for one in awaited}
        self._answer: Callable[[Any], object] | None = answer
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.timed_out: frozenset[TopicPartition] = frozenset()

    @property
    def keys(self) -> list[TopicPartition]:
        return list(self._open)

    def _is_done(self, awaited: A) -> bool:
        """Whether one of them is; an error where it never will be."""
        raise NotImplementedError

    def is_ready(self, key: TopicPartition | None) -> bool:
        for topic_partition in list(self._open) if key is None else (key,):
            awaited = self._open.get(topic_partition)
            if awaited is None:
                continue
            try:
                if not self._is_done(awaited):
                    continue
            except PenstockError as error:
                self.errors[topic_partition] = error
            del self._open[topic_partition]
        return not self._open

    def finish(self) -> None:
        # What is called holds this too: only a collection would find the two.
        answer, self._answer = self._answer, None
        assert answer is not None
        answer(self)

    def expire(self) -> None:
        self.timed_out = frozenset(self._open)
        self.finish()
