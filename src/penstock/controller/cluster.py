"""What the controller of a cluster decides from: its image of the tree, who is alive, and whose log can be trusted.

Log generations: a partition's `state` records the generation of each ISR member's logs, and those of `eligible`, the members
that left while the ISR fell below min ISR. A replica is trusted when it is alive and its logs are of the recorded
generation: then it still has all that was acknowledged while it was a member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.ids import TopicPartition
from penstock.metadata import layout
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.layout import NO_LEADER, PartitionState
from penstock.metadata.store import Check, Operation, SetData, Transaction
from penstock.storage.config import stored_log_config

GENERATIONS = "log_generations"
ELIGIBLE = "eligible"
OPERATIONS_MAX = 500
"""In one transaction: ZooKeeper takes a megabyte at most."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """The controller's own view. `image` is the tree as the store confirmed it to this controller."""

    controller_id: int
    image: Image = field(default_factory=Image)
    controller_epoch: int = 0
    epoch_version: int = -1
    """The version of `/controller_epoch`: every write is refused once another controller was elected."""
    shutting_down: set[int] = field(default_factory=set)
    """Brokers that asked to stop: alive, but no leaders any more."""
    log_values: Mapping[str, object] = field(default_factory=dict)
    listener: str = ""
    """Through which brokers reach each other; their first one where this is empty."""

    def fenced(self, operations: Sequence[Operation]) -> Transaction:
        """A transaction that happens only while this controller is the last one elected."""
        check = Check(path=layout.CONTROLLER_EPOCH, version=self.epoch_version)
        return Transaction(operations=(check, *operations))

    def partition(self, key: TopicPartition) -> PartitionImage | None:
        return self.image.partition(key.topic, key.partition)

    def is_alive(self, key: TopicPartition, broker_id: int) -> bool:
        """Whether the broker is there, and its log directory of this partition."""
        offline = self.image.offline_replicas.get((key.topic, key.partition), ())
        return broker_id in self.image.brokers and broker_id not in offline

    def is_trusted(self, key: TopicPartition, partition: PartitionImage, broker_id: int) -> bool:
        if not self.is_alive(key, broker_id):
            return False
        recorded = generations_of(partition).get(broker_id)
        return recorded is None or recorded == self.image.brokers[broker_id].generation

    def min_isr(self, topic: str, partition: PartitionImage) -> int:
        config = stored_log_config(self.image.topic_configs.get(topic, {}), self.log_values)
        return min(config.min_insync_replicas, len(partition.replicas))

    def allows_unclean(self, topic: str) -> bool:
        own = self.image.topic_configs.get(topic, {}).get("unclean.leader.election.enable")
        if own is not None:
            return own.strip().lower() == "true"
        return bool(self.log_values.get("unclean.leader.election.enable", False))

    def becomes(self, key: TopicPartition, partition: PartitionImage, leader: int, isr: tuple[int, ...]) -> SetData:
        """A partition's next state: a new leader epoch, the generations of its members, who is eligible."""
        return self._written(key, partition, leader, partition.leader_epoch + 1, isr)

    def with_isr(self, key: TopicPartition, partition: PartitionImage, isr: tuple[int, ...]) -> SetData:
        """The same leader in the same epoch with another ISR, as a leader asks for it."""
        return self._written(key, partition, partition.leader, partition.leader_epoch, isr)

    def _written(
        self, key: TopicPartition, partition: PartitionImage, leader: int, leader_epoch: int, isr: tuple[int, ...]
    ) -> SetData:
        state = PartitionState(
            leader=leader,
            leader_epoch=leader_epoch,
            isr=isr,
            controller_epoch=self.controller_epoch,
            extra={**partition.extra, **self._record(key.topic, partition, leader, isr)},
        )
        return SetData(
            path=layout.state_path(key.topic, key.partition),
            data=layout.encode_state(state),
            version=partition.state_version,
        )

    def _record(self, topic: str, partition: PartitionImage, leader: int, isr: tuple[int, ...]) -> dict[str, object]:
        """A leader's logs are the truth from its election on, whatever they were before. Without one nothing is acknowledged, whatever min ISR says."""
        known = generations_of(partition)
        eligible: list[int] = []
        if leader == NO_LEADER or len(isr) < self.min_isr(topic, partition):
            left = [*eligible_of(partition), *(member for member in partition.isr if member not in isr)]
            eligible = [member for member in dict.fromkeys(left) if member not in isr]
        generations: dict[str, str] = {}
        for member in isr:
            broker = self.image.brokers.get(member)
            stays = member in partition.isr and member in known and (member != leader or leader == partition.leader)
            if broker is not None and not stays:
                generations[str(member)] = broker.generation
            elif member in known:
                generations[str(member)] = known[member]
        generations |= {str(member): known[member] for member in eligible if member in known}
        return {GENERATIONS: generations, ELIGIBLE: eligible}

    def first_state(self, replicas: tuple[int, ...], key: TopicPartition) -> PartitionState:
        """Of a new partition: led by the first replica that is alive, with all of those in sync."""
        alive = tuple(one for one in replicas if self.is_alive(key, one) and one not in self.shutting_down) or tuple(
            one for one in replicas if self.is_alive(key, one)
        )
        generations = {str(one): self.image.brokers[one].generation for one in alive}
        return PartitionState(
            leader=alive[0] if alive else NO_LEADER,
            leader_epoch=0,
            isr=alive or replicas,
            controller_epoch=self.controller_epoch,
            extra={GENERATIONS: generations, ELIGIBLE: []},
        )


def generations_of(partition: PartitionImage) -> dict[int, str]:
    """The generation of each member's logs when it was last known to be in sync; none of states that Kafka wrote."""
    recorded = partition.extra.get(GENERATIONS, {})
    assert isinstance(recorded, dict)
    return {int(member): str(generation) for member, generation in recorded.items()}


def eligible_of(partition: PartitionImage) -> tuple[int, ...]:
    members = partition.extra.get(ELIGIBLE, [])
    assert isinstance(members, list)
    return tuple(int(member) for member in members)


def batches(cluster: Cluster, operations: Sequence[Operation]) -> list[Transaction]:
    """Fenced transactions that are small enough. Not torn apart, one after the other: a node and its child, and a topic and the mark that it goes,
    by which the next topic of its name would go too."""
    found = []
    start = 0
    while start < len(operations):
        end = min(start + OPERATIONS_MAX, len(operations))
        if end < len(operations) and _belong_together(operations[end - 1].path, operations[end].path):
            end -= 1
        found.append(cluster.fenced(operations[start:end]))
        start = end
    return found


def _belong_together(one: str, other: str) -> bool:
    topic = layout.topic_of(one)
    is_mark = topic is not None and other == layout.deletion_mark(topic)
    return is_mark or one.startswith(f"{other}/") or other.startswith(f"{one}/")
