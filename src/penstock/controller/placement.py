"""Which brokers hold a new partition's replicas."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.controller.errors import InvalidReplicationFactorError


def place(
    brokers: Sequence[int], partitions: int, replication_factor: int, first_partition: int = 0
) -> dict[int, tuple[int, ...]]:
    """Leaders go round the brokers; followers start one further with each round, so that pairs differ."""
    count = len(brokers)
    if not 0 < replication_factor <= count:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} needs as many live brokers; there are {count}"
        )
    placed = {}
    for partition in range(first_partition, first_partition + partitions):
        shift = partition // count
        replicas = [brokers[partition % count]]
        for follower in range(replication_factor - 1):
            step = 1 + (shift + follower) % (count - 1)
            replicas.append(brokers[(partition + step) % count])
        placed[partition] = tuple(replicas)
    return placed
