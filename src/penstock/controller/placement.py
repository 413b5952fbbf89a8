"""Which brokers hold a new partition's replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.controller.errors import InvalidReplicationFactorError


def place(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    first_partition: int = 0,
    racks: Mapping[int, str] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Leaders go round the brokers; followers start one further with each round, so that pairs differ.

    Where every broker has a rack, a partition has two replicas in one rack only if it has one in each (KIP-36).
    """
    count = len(brokers)
    if not 0 < replication_factor <= count:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} needs as many live brokers; there are {count}"
        )
    known = racks if racks is not None and all(broker in racks for broker in brokers) else {}
    ordered = _by_turns(brokers, known) if known else list(brokers)
    placed = {}
    for partition in range(first_partition, first_partition + partitions):
        shift = partition // count
        replicas = [ordered[partition % count]]
        candidates = [ordered[(partition + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
        while len(replicas) < replication_factor:
            used = {known.get(replica) for replica in replicas}
            free = [broker for broker in candidates if broker not in replicas]
            elsewhere = [broker for broker in free if known.get(broker) not in used]
            replicas.append((elsewhere or free)[0])
        placed[partition] = tuple(replicas)
    return placed


def _by_turns(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Brokers so that neighbours stand in different racks, as far as that goes."""
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks[broker], []).append(broker)
    longest = max(len(members) for members in by_rack.values())
    return [by_rack[rack][turn] for turn in range(longest) for rack in sorted(by_rack) if turn < len(by_rack[rack])]
