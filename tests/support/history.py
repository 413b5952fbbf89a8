"""What clients of a cluster did and saw, and what in it must not be: in the spirit of Jepsen's Kafka workload.

Every value is written once by one producer, in ascending numbers for each partition. `find_anomalies` holds for acks=all, min ISR 2 and no
unclean elections.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """An answer said that it did not happen."""
    UNKNOWN = "unknown"
    """Timed out, or the connection broke: it may have happened, once."""
    ABORTED = "aborted"
    """In a transaction that was aborted."""


class Value(NamedTuple):
    producer: int
    number: int

    @classmethod
    def parse(cls, data: bytes) -> "Value":
        producer, _, number = data.partition(b":")
        return cls(int(producer), int(number))

    def encode(self) -> bytes:
        return b"%d:%d" % self


class Write(NamedTuple):
    partition: int
    value: Value
    outcome: Outcome
    offset: int = -1


class Seen(NamedTuple):
    reader: int
    partition: int
    offset: int
    value: Value


class Anomaly(NamedTuple):
    kind: str
    what: str


class History:
    """Filled by many threads; the last reader reads everything, from the start to the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.writes: list[Write] = []
        self.seen: list[Seen] = []

    def wrote(self, write: Write) -> None:
        with self._lock:
            self.writes.append(write)

    def saw(self, seen: Seen) -> None:
        with self._lock:
            self.seen.append(seen)

    def anomalies(self, final_reader: int) -> list[Anomaly]:
        return find_anomalies(self.writes, self.seen, final_reader)


def find_anomalies(writes: Iterable[Write], seen: Iterable[Seen], final_reader: int) -> list[Anomaly]:
    written, observed = list(writes), list(seen)
    final = [one for one in observed if one.reader == final_reader]
    return [
        *_lost(written, final),
        *_duplicated(observed),
        *_out_of_order(final),
        *_out_of_order_for_readers(observed),
        *_aborted_or_refused(written, observed),
        *_elsewhere(written, observed),
        *_invented(written, observed),
    ]


def _lost(writes: list[Write], final: list[Seen]) -> Iterable[Anomaly]:
    found = {(one.partition, one.value) for one in final}
    for write in writes:
        if write.outcome is Outcome.ACKNOWLEDGED and (write.partition, write.value) not in found:
            yield Anomaly("lost", f"{write} was acknowledged and is not there")


def _duplicated(observed: list[Seen]) -> Iterable[Anomaly]:
    offsets: dict[tuple[int, Value], set[int]] = defaultdict(set)
    for one in observed:
        offsets[one.partition, one.value].add(one.offset)
    for (partition, value), where in offsets.items():
        if len(where) > 1:
            yield Anomaly("duplicated", f"{value} stands at offsets {sorted(where)} of partition {partition}")


def _out_of_order(final: list[Seen]) -> Iterable[Anomaly]:
    last: dict[tuple[int, int], Seen] = {}
    for one in sorted(final, key=lambda one: (one.partition, one.offset)):
        before = last.get((one.partition, one.value.producer))
        if before is not None and before.value.number > one.value.number:
            yield Anomaly("reordered", f"{one} stands after {before}")
        last[one.partition, one.value.producer] = one


def _out_of_order_for_readers(observed: list[Seen]) -> Iterable[Anomaly]:
    """Offsets rise for each reader; one that reads again from the start counts as another reader."""
    last: dict[tuple[int, int], int] = {}
    for one in observed:
        before = last.get((one.reader, one.partition), -1)
        if one.offset <= before:
            yield Anomaly("read backwards", f"{one} was read after offset {before}")
        last[one.reader, one.partition] = one.offset


def _aborted_or_refused(writes: list[Write], observed: list[Seen]) -> Iterable[Anomaly]:
    outcomes = {(write.partition, write.value): write.outcome for write in writes}
    for one in observed:
        outcome = outcomes.get((one.partition, one.value))
        if outcome is Outcome.ABORTED:
            yield Anomaly("aborted", f"{one} was read, and its transaction was aborted")
        elif outcome is Outcome.REFUSED:
            yield Anomaly("refused", f"{one} was read, and its write was refused")


def _elsewhere(writes: list[Write], observed: list[Seen]) -> Iterable[Anomaly]:
    at: dict[tuple[int, int], Value] = {}
    given: dict[tuple[int, Value], int] = {}
    for write in writes:
        if write.outcome is not Outcome.ACKNOWLEDGED or write.offset < 0:
            continue
        given[write.partition, write.value] = write.offset
        if at.setdefault((write.partition, write.offset), write.value) != write.value:
            yield Anomaly("elsewhere", f"{write}: that offset was given before")
    for one in observed:
        if given.get((one.partition, one.value), one.offset) != one.offset:
            yield Anomaly("elsewhere", f"{one} was acknowledged at {given[one.partition, one.value]}")
        if at.setdefault((one.partition, one.offset), one.value) != one.value:
            yield Anomaly("elsewhere", f"{one}: {at[one.partition, one.offset]} stands there for others")


def _invented(writes: list[Write], observed: list[Seen]) -> Iterable[Anomaly]:
    known = {(write.partition, write.value) for write in writes}
    for one in observed:
        if (one.partition, one.value) not in known:
            yield Anomaly("invented", f"{one} was never written")
