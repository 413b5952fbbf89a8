"""The group coordinator's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.config import INT_MAX, ConfigKey, integer, table

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("group.min.session.timeout.ms", 6_000, "The shortest session timeout a member may ask for.", dynamic=False),
    integer("group.max.session.timeout.ms", 1_800_000, "The longest session timeout a member may ask for.", dynamic=False),
    integer("group.initial.rebalance.delay.ms", 3_000, "How long an empty group waits for more members.", dynamic=False),
    integer("group.max.size", INT_MAX, "Members of one group.", low=1, dynamic=False),
    integer("offsets.topic.num.partitions", 50, "Partitions of `__consumer_offsets`.", low=1, dynamic=False),
    integer("offsets.topic.replication.factor", 3, "Replicas of `__consumer_offsets`; as many as there are brokers, if fewer.", low=1, dynamic=False),
    integer("offsets.topic.segment.bytes", 104_857_600, "Segment size of `__consumer_offsets`.", low=1, dynamic=False),
    integer("offsets.retention.minutes", 10_080, "How long offsets outlive their group's last use.", low=1, dynamic=False),
    integer("offsets.retention.check.interval.ms", 600_000, "How often expired offsets are looked for.", bits=64, low=1, dynamic=False),
    integer("offset.metadata.max.bytes", 4_096, "The longest note at a committed offset.", dynamic=False),
)  # fmt: skip


class Values(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_delay_ms: int = 3_000
    members_max: int = INT_MAX
    retention_ms: int = 10_080 * 60_000
    retention_check_ms: int = 600_000
    metadata_bytes_max: int = 4_096
    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_segment_bytes: int = 104_857_600

    @classmethod
    def read(cls, values: Values) -> GroupSettings:
        return cls(
            session_timeout_min_ms=values["group.min.session.timeout.ms"],
            session_timeout_max_ms=values["group.max.session.timeout.ms"],
            initial_delay_ms=values["group.initial.rebalance.delay.ms"],
            members_max=values["group.max.size"],
            retention_ms=values["offsets.retention.minutes"] * 60_000,
            retention_check_ms=values["offsets.retention.check.interval.ms"],
            metadata_bytes_max=values["offset.metadata.max.bytes"],
            topic_partitions=values["offsets.topic.num.partitions"],
            topic_replication_factor=values["offsets.topic.replication.factor"],
            topic_segment_bytes=values["offsets.topic.segment.bytes"],
        )
