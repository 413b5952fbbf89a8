"""Asks brokers how far their logs go, for partitions that only the longest log can lead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.recovery import LogEnd

logger = logging.getLogger(__name__)

Ends = dict[TopicPartition, dict[int, LogEnd]]


class LogEndsChannel(Protocol):
    def log_ends(
        self,
        broker_id: int,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, LogEnd] | PenstockError], object],
    ) -> None:
        """The ends of those logs that the broker has."""


def ask_log_ends(
    channel: LogEndsChannel, wanted: Mapping[TopicPartition, tuple[int, ...]], done: Callable[[Ends], object]
) -> None:
    """`done` gets what was told, when everybody has answered or could not."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for key, members in wanted.items():
        for broker_id in members:
            by_broker.setdefault(broker_id, []).append(key)
    ends: Ends = {key: {} for key in wanted}
    left = set(by_broker)

    def answered(broker_id: int, answer: dict[TopicPartition, LogEnd] | PenstockError) -> None:
        if isinstance(answer, PenstockError):
            logger.info("broker %d does not say how far its logs go: %s", broker_id, answer)
        else:
            for key, end in answer.items():
                ends[key][broker_id] = end
        left.discard(broker_id)
        if not left:
            done(ends)

    for broker_id, keys in by_broker.items():
        channel.log_ends(broker_id, keys, partial(answered, broker_id))
