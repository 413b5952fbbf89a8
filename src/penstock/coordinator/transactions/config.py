"""The transaction coordinator's configuration keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.config import ConfigKey, boolean, integer, table

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("transaction.max.timeout.ms", 900_000, "The longest time a transaction may ask to stay open.", low=1, dynamic=False),
    integer("transactional.id.expiration.ms", 604_800_000, "How long a transactional id that nobody uses is remembered.", low=1, dynamic=False),
    integer("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, "How often transactions past their timeout are aborted.", low=1, dynamic=False),
    integer("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, "How often expired transactional ids are looked for.", low=1, dynamic=False),
    boolean("transaction.partition.verification.enable", True, "Ask the coordinator before a transaction's first write to a partition (KIP-890)."),
    integer("transaction.state.log.num.partitions", 50, "Partitions of `__transaction_state`.", low=1, dynamic=False),
    integer("transaction.state.log.replication.factor", 3, "Replicas of `__transaction_state`; as many as there are brokers, if fewer.", low=1, dynamic=False),
    integer("transaction.state.log.min.isr", 2, "In-sync replicas that `__transaction_state` needs; as many as it has, if fewer.", low=1, dynamic=False),
    integer("transaction.state.log.segment.bytes", 104_857_600, "Segment size of `__transaction_state`.", low=1, dynamic=False),
)  # fmt: skip


class Values(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    timeout_max_ms: int = 900_000
    expiration_ms: int = 604_800_000
    timeout_check_ms: int = 10_000
    expiration_check_ms: int = 3_600_000
    verifies_partitions: Callable[[], bool] = lambda: True
    """Asked each time: this one may be changed while the broker runs."""
    topic_partitions: int = 50
    topic_replication_factor: int = 3
    topic_min_isr: int = 2
    topic_segment_bytes: int = 104_857_600

    @classmethod
    def read(cls, values: Values) -> TransactionSettings:
        return cls(
            timeout_max_ms=values["transaction.max.timeout.ms"],
            expiration_ms=values["transactional.id.expiration.ms"],
            timeout_check_ms=values["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
            expiration_check_ms=values["transaction.remove.expired.transaction.cleanup.interval.ms"],
            verifies_partitions=lambda: bool(values["transaction.partition.verification.enable"]),
            topic_partitions=values["transaction.state.log.num.partitions"],
            topic_replication_factor=values["transaction.state.log.replication.factor"],
            topic_min_isr=values["transaction.state.log.min.isr"],
            topic_segment_bytes=values["transaction.state.log.segment.bytes"],
        )
