"""The controller's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.config import LONG_MAX, ConfigKey, boolean, integer, table

_NO_PEERS = "On one node nothing is replicated."

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("num.partitions", 1, "Partitions of a topic for which nobody says how many.", low=1, dynamic=False),
    integer(
        "default.replication.factor", 1, "Replicas of a topic for which nobody says how many.", low=1, dynamic=False
    ),
    boolean("auto.create.topics.enable", True, "Whether asking for a topic creates it.", dynamic=False),
    integer(
        "max.request.partition.size.limit",
        2000,
        "Partitions in one answer of DescribeTopicPartitions.",
        low=1,
        dynamic=False,
    ),
    integer("leader.replication.throttled.rate", LONG_MAX, f"Bytes a second. {_NO_PEERS}", bits=64, low=0),
    integer("follower.replication.throttled.rate", LONG_MAX, f"Bytes a second. {_NO_PEERS}", bits=64, low=0),
    boolean("auto.leader.rebalance.enable", True, "Whether leaders go back to their preferred replicas by themselves."),
    integer("leader.imbalance.check.interval.seconds", 300, "How often that is looked after.", low=1, dynamic=False),
    integer("leader.imbalance.per.broker.percentage", 10, "From how many leaders elsewhere on.", low=0, dynamic=False),
    integer(
        "unclean.recovery.timeout.ms",
        300_000,
        "How long a partition whose replicas may all have lost records waits for the last of them; then the longest log leads.",
        low=0,
        dynamic=False,
    ),
    boolean("controlled.shutdown.enable", True, "Whether leaders move before a broker stops.", dynamic=False),
    integer(
        "controller.socket.timeout.ms", 30_000, "How long a broker may take to answer another.", low=1, dynamic=False
    ),
    boolean("delete.topic.enable", True, "Whether topics can be deleted.", dynamic=False),
)
