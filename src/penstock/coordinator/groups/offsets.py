"""Committed offsets of a group: who may commit, and when offsets expire (KIP-211)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.coordinator.errors import CoordinatorNotAvailableError
from penstock.coordinator.groups.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from penstock.coordinator.groups.membership import find_member
from penstock.coordinator.groups.messages import Asker, Commit, Decision
from penstock.coordinator.groups.model import CONSUMER, Group, State
from penstock.coordinator.groups.pending_offsets import PendingOffsets
from penstock.coordinator.groups.rebalance import Rebalances
from penstock.protocol.group_records import NO_TIMESTAMP, GroupKey, OffsetKey, OffsetValue


class PartitionOutcome(NamedTuple):
    topic: str
    partition: int
    error: PenstockError | None


def check_commit(group: Group, asker: Asker, rebalances: Rebalances) -> None:
    """Raises why this asker may not commit. A member's commit is a sign of life."""
    if group.state is State.DEAD:
        raise CoordinatorNotAvailableError(f"group {group.group_id} is about to go")
    if asker.generation < 0 and group.state is State.EMPTY:
        return
    if asker.generation < 0 and asker.member_id == "" and asker.instance_id is None:
        raise UnknownMemberIdError(f"group {group.group_id} has members: only they commit")
    member = find_member(group, asker)
    if group.state is State.COMPLETING:
        # It may be gone from the assignment that is on its way.
        raise RebalanceInProgressError(f"group {group.group_id} rebalances")
    rebalances.touch(group, member)


def check_commit_in_transaction(group: Group, asker: Asker) -> None:
    """The same within a transaction: older clients do not say who they are, and a rebalance does not matter (KIP-447)."""
    if group.state is State.DEAD:
        raise CoordinatorNotAvailableError(f"group {group.group_id} is about to go")
    if asker.generation < 0 and group.state is State.EMPTY:
        return
    if asker.generation >= 0 or asker.member_id != "" or asker.instance_id is not None:
        find_member(group, asker)


def decide_commit(
    group: Group, commits: Iterable[Commit], retention_ms: int, metadata_bytes_max: int, now_ms: int, decision: Decision
) -> tuple[PartitionOutcome, ...]:
    """`retention_ms` is the client's own, or -1. One error concerns its partition only."""
    outcomes = []
    for topic, partition, offset, leader_epoch, metadata in commits:
        error: PenstockError | None = None
        if len(metadata.encode()) > metadata_bytes_max:
            error = OffsetMetadataTooLargeError(f"a note at an offset has {metadata_bytes_max} bytes at most")
        else:
            expire_ms = NO_TIMESTAMP if retention_ms < 0 else now_ms + retention_ms
            value = OffsetValue(offset, leader_epoch, metadata, now_ms, expire_ms)
            decision.records.append((OffsetKey(group.group_id, topic, partition), value))
        outcomes.append(PartitionOutcome(topic, partition, error))
    return tuple(outcomes)


def decide_delete(
    group: Group | None, partitions: Iterable[tuple[str, int]], pending: PendingOffsets, decision: Decision
) -> tuple[PartitionOutcome, ...]:
    """Removes offsets that no member lives by, and what a transaction would commit in their place."""
    if group is None or group.state is State.DEAD:
        raise GroupIdNotFoundError("there is no such group")
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        raise NonEmptyGroupError(f"group {group.group_id} has members")
    outcomes = []
    for topic, partition in partitions:
        error: PenstockError | None = None
        if group.state is not State.EMPTY and (group.subscribed is None or topic in group.subscribed):
            error = GroupSubscribedToTopicError(f"members of {group.group_id} consume {topic}")
        elif (topic, partition) in group.offsets or pending.is_held(group.group_id, topic, partition):
            decision.records.append((OffsetKey(group.group_id, topic, partition), None))
        outcomes.append(PartitionOutcome(topic, partition, error))
    return tuple(outcomes)


def decide_expiry(group: Group, pending: PendingOffsets, retention_ms: int, now_ms: int, decision: Decision) -> None:
    """Tombstones for what has expired, and for the group itself where nothing of it is left.

    Offsets of an empty group live from the moment it became empty (KAFKA-4682), those of a simple group from their
    commit; a stable group loses those of topics that no member consumes any more; a group between generations
    loses none (KAFKA-13636). What a transaction is about to write stays.
    """
    expired = [
        place
        for place, value in group.offsets.items()
        if _has_expired(group, place[0], value, retention_ms, now_ms) and not pending.is_held(group.group_id, *place)
    ]
    for topic, partition in expired:
        decision.records.append((OffsetKey(group.group_id, topic, partition), None))
    nothing_left = len(expired) == len(group.offsets)
    if group.state is State.EMPTY and nothing_left and not group.pending and not pending.has_group(group.group_id):
        decision.records.append((GroupKey(group.group_id), None))


def _has_expired(group: Group, topic: str, value: OffsetValue, retention_ms: int, now_ms: int) -> bool:
    if group.protocol_type is None:
        since_ms = value.commit_timestamp_ms
    elif group.state is State.EMPTY:
        since_ms = max(group.state_ms, value.commit_timestamp_ms) if group.state_ms >= 0 else value.commit_timestamp_ms
    elif group.state is State.STABLE and group.subscribed is not None and topic not in group.subscribed:
        since_ms = value.commit_timestamp_ms
    else:
        return False
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
