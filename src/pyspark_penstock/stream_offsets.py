"""A stream's position as JSON: Spark's own Kafka connector's form, so that its checkpoints go on with ours.

    {"topicA": {"0": 23, "1": 345}, "topicB": {"0": 5}}

Spark keeps the end of each batch in its checkpoint but not where the first batch began: it asks for that again after a
crash, and "latest" would by then mean something later. So the position a new stream begins with carries `@initial`, and
the end of its first batch carries that beginning as `@start`. No topic's name can begin with `@`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition

INITIAL = "@initial"
START = "@start"

Offsets = Mapping[TopicPartition, int]


class CheckpointError(PenstockError):
    """A checkpoint holds a position that is none of ours."""


def to_json(offsets: Offsets) -> dict[str, Any]:
    """In order of topics and partitions: Spark compares positions as text."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(position: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The offsets of a position, its marks left aside."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, by_partition in position.items()
            if not topic.startswith("@")
            for partition, offset in by_partition.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise CheckpointError(f"{position!r} in the checkpoint is no position of a Kafka stream") from None


def initial(offsets: Offsets) -> dict[str, Any]:
    return {**to_json(offsets), INITIAL: True}


def is_initial(position: Mapping[str, Any]) -> bool:
    return INITIAL in position


def first_end(offsets: Offsets, start: Offsets) -> dict[str, Any]:
    """The end of a stream's first batch; differs from every start as text, so the batch runs even if it is empty."""
    return {**to_json(offsets), START: to_json(start)}


def start_of(start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Where a batch begins: where its end says so, or else at `start`."""
    return from_json(end.get(START, start))


def is_foreign_first(start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Whether this is a stream's first batch, run again, and planned by somebody who does not write its beginning here."""
    return is_initial(start) and START not in end
