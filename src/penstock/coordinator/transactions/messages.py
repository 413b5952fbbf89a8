"""What the transaction coordinator is asked and what it decides, free of the wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.ids import TopicPartition
from penstock.protocol.transaction_records import TransactionValue


class ProducerStamp(NamedTuple):
    """A producer as it signs its requests; as a reply, how it is to sign from now on."""

    producer_id: int
    epoch: int


class InitProducerId(NamedTuple):
    transactional_id: str
    timeout_ms: int
    expected: ProducerStamp | None
    """What the producer thinks it is (KIP-360); None where it starts anew and fences whoever was there."""


class AddPartitions(NamedTuple):
    transactional_id: str
    producer: ProducerStamp
    partitions: Iterable[TopicPartition]
    client_version: int


class EndTransaction(NamedTuple):
    transactional_id: str
    producer: ProducerStamp
    commit: bool
    client_version: int


class Transition(NamedTuple):
    """A transactional id's next state: a record to append. `value` is None where the id is forgotten."""

    transactional_id: str
    value: TransactionValue | None
    last_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from a request: a transition to carry out first, if there is one, and then the reply.

    Whoever carries it out appends the transition's record and tells the shard when it is below the high watermark
    (`committed`), or that it will not be (`failed`); until then the transactional id takes no other step.
    """

    transition: Transition | None = None
    reply: ProducerStamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Markers:
    """The end of one transaction, to be written to each of its partitions."""

    transactional_id: str
    producer: ProducerStamp
    commit: bool
    client_version: int
    partitions: frozenset[TopicPartition]
