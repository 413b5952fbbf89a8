"""Offsets committed in transactions that have not ended: they count when the commit marker comes, and not before.

Of several values for one place the one that was written last counts, whichever transaction ends first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple, TypeVar

from penstock.protocol.group_records import OffsetKey, OffsetValue

T = TypeVar("T")


class _Held(NamedTuple):
    number: int
    key: OffsetKey
    value: OffsetValue | None


class PendingOffsets:
    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, str, int], _Held | None]] = {}
        """None: something newer was committed at that place meanwhile."""
        self._places: Counter[tuple[str, str, int]] = Counter()
        self._groups: Counter[str] = Counter()
        self._number = 0

    def hold(self, producer_id: int, key: OffsetKey, value: OffsetValue | None) -> None:
        held = self._by_producer.setdefault(producer_id, {})
        place = key[:3]
        if place not in held:
            self._places[place] += 1
            self._groups[key.group] += 1
        self._number += 1
        held[place] = _Held(self._number, key, value)

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[OffsetKey, OffsetValue | None]]:
        """The transaction is over; gives what now counts."""
        found = []
        for place, held in self._by_producer.pop(producer_id, {}).items():
            _take_one(self._places, place)
            _take_one(self._groups, place[0])
            if commit and held is not None:
                self._supersede(place, held.number)
                found.append((held.key, held.value))
        return found

    def groups_of(self, producer_id: int) -> set[str]:
        """Groups in which the producer's transaction holds something."""
        return {place[0] for place in self._by_producer.get(producer_id, {})}

    def supersede(self, key: OffsetKey) -> None:
        """The place was written outside of these transactions: what they hold for it is older."""
        if self._places:
            self._supersede(key[:3], self._number)

    def _supersede(self, place: tuple[str, str, int], number: int) -> None:
        if place not in self._places:
            return
        for held in self._by_producer.values():
            one = held.get(place)
            if one is not None and one.number <= number:
                held[place] = None

    def drop(self, key: OffsetKey) -> None:
        """The place was deleted: what transactions hold for it is gone with it, however they end."""
        place = key[:3]
        for held in self._by_producer.values() if place in self._places else ():
            if place in held:
                del held[place]
                _take_one(self._places, place)
                _take_one(self._groups, place[0])

    def places(self) -> Iterator[OffsetKey]:
        """Where any transaction holds something."""
        return starmap(OffsetKey, self._places)

    def is_held(self, group_id: str, topic: str, partition: int) -> bool:
        return (group_id, topic, partition) in self._places

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups


def _take_one(counter: Counter[T], name: T) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
