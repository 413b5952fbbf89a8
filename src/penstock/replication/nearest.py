"""Which replica a consumer should read from: one in its own rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.replication.partition import Partition


def nearest(partition: Partition, racks: Mapping[int, str | None], rack: str, offset: int) -> int | None:
    """A follower in the consumer's rack that has what it asks for, the furthest of them; None where the leader should serve."""
    followers = partition.followers
    if followers is None or racks.get(partition.local_id) == rack:
        return None
    near = [
        one
        for one in followers
        if racks.get(one.broker_id) == rack
        and one.broker_id in partition.isr
        and one.log_start_offset <= offset <= one.end_offset
    ]
    best = max(near, key=lambda one: (one.end_offset, -one.broker_id), default=None)
    return None if best is None else best.broker_id
