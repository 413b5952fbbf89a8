"""A broker whose partitions have a follower, broker 2: it is in sync, and says so only when it is told to."""

from __future__ import annotations

from tests.unit.handlers.test_transaction_apis import Served

from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions.messages import EndTransaction, ProducerStamp
from penstock.drivers.transactions import LedShard
from penstock.replication.partition import Partition

TRANSACTIONS, GROUPS = TopicPartition("__transaction_state", 0), TopicPartition("__consumer_offsets", 0)


class Replicated(Served):
    def at(self, place: tuple[str, int]) -> Partition:
        return self.partitions.get(*place)

    def lead(self, place: tuple[str, int], leader: int = 1) -> None:
        """A new epoch, of the same leader or of another; the follower has fetched nothing in it."""
        partition = self.at(place)
        epoch = partition.leader_epoch + 1
        partition.take_role(leader=leader, leader_epoch=epoch, isr=(1, 2), replicas=(1, 2), partition_epoch=epoch)
        self.holdings.changed(TopicPartition(*place))
        self.groups.follow([place[0]])
        self.transactions.follow([place[0]])
        self.loop.turn()

    def fetch_all(self, place: tuple[str, int]) -> None:
        """The follower has everything: what a handler does with its fetch, and no request of anybody else."""
        partition = self.at(place)
        end_offset = partition.log.end_offset
        fetched = partition.fetched_by(2, 1, end_offset, 0, self.clock.monotonic_ms())
        assert fetched is not None
        if fetched.high_watermark_moved:
            self.services.produce_waits.changed(TopicPartition(*place))
        self.loop.turn()
        assert partition.log.high_watermark >= end_offset

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> list[object]:
        """What the producer hears, when it does."""
        heard: list[object] = []
        producer = ProducerStamp(producer_id, epoch)
        self.transactions.end(EndTransaction(transactional_id, producer, commit, 2), heard.append)
        self.loop.turn()
        return heard

    def state(self, transactional_id: str = "x") -> str:
        led: LedShard = self.transactions.find(transactional_id)
        return led.shard.transactions[transactional_id].state.label
