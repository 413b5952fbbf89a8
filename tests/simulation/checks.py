"""What must hold after every step, whatever happens to the brokers.

- One controller at most acts in a controller epoch; epochs rise; a leader is in its ISR.
- One broker at most leads in a leader epoch, and it has everything that was ever committed.
- What any replica holds below its high watermark is what every other held there: the committed prefix is agreed on. (One
  whose disk forgot something may hold what it had before a cut, until it is in sync again: nobody trusts it meanwhile.)
- A leader's high watermark never falls.
- At the end, when all is healed: every replica has the same bytes, everybody is in sync, and everything acknowledged is there
  where it was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.metadata.layout import PartitionState
from penstock.records import payload
from penstock.records.batch import records_slice, scan
from penstock.replication.partition import Partition
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster


class Violation(AssertionError):
    """Something that must hold does not."""


class _Seen(NamedTuple):
    end_offset: int
    log_epoch: int
    high_watermark: int
    leader_epoch: int
    is_leader: bool


class _Replica:
    """One replica's records by offset, kept up with its log."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.seen: _Seen | None = None
        self.agreed_end = 0


class Checks:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._replicas: dict[tuple[int, TopicPartition], _Replica] = {}
        self.committed: dict[TopicPartition, list[bytes]] = {}
        self._committed_in: dict[TopicPartition, list[int]] = {}
        """In which leader epoch each was: a leader that hears of its epoch late need not have what was written since."""
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._zxid = -1
        self._controllers: dict[int, int] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._doubtful: set[tuple[int, TopicPartition]] = set()
        self.acked: dict[tuple[TopicPartition, int], bytes] = {}

    def acknowledged(self, key: TopicPartition, base_offset: int, values: list[bytes]) -> None:
        for number, value in enumerate(values):
            known = self.acked.setdefault((key, base_offset + number), value)
            if known != value:
                raise Violation(f"{key} offset {base_offset + number} was acknowledged for two records")

    def died(self, broker_id: int, *, power: bool) -> None:
        if power:
            self._doubtful.update((broker_id, key) for key in self._cluster.assigned)
        for holder, key in list(self._replicas):
            if holder == broker_id:
                del self._replicas[holder, key]

    def after_a_step(self) -> None:
        zxid = self._cluster.tree.tree.zxid
        if zxid != self._zxid:
            self._zxid = zxid
            self._check_store()
        for broker_id, broker in self._cluster.brokers.items():
            for partition in broker.partitions:
                key = partition.topic_partition
                replica = self._replicas.get((broker_id, key))
                if replica is None:
                    replica = self._replicas[broker_id, key] = _Replica()
                log = partition.log
                seen = _Seen(log.end_offset, log.epoch, log.high_watermark, partition.leader_epoch, partition.is_leader)
                if seen != replica.seen:
                    self._check(broker_id, partition, replica, seen)
                    replica.seen = seen

    def _check_store(self) -> None:
        """One controller acts in an epoch, epochs rise, and who leads is in sync."""
        for broker_id, broker in self._cluster.brokers.items():
            if broker.controller.is_active:
                epoch = broker.controller.cluster.controller_epoch
                if self._controllers.setdefault(epoch, broker_id) != broker_id:
                    raise Violation(
                        f"brokers {self._controllers[epoch]} and {broker_id} act in controller epoch {epoch}"
                    )
        for key in self._cluster.assigned:
            state = self._cluster.state(key)
            before = self._states.get(key)
            if state is None or state == before:
                continue
            self._states[key] = state
            self._cluster.events.note(f"{key} leader={state.leader} epoch={state.leader_epoch} isr={state.isr}")
            if state.leader >= 0 and state.leader not in state.isr:
                raise Violation(f"{key}: leader {state.leader} is not in the ISR {state.isr}")
            if before is not None and (
                state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch
            ):
                raise Violation(f"{key}: an epoch fell, from {before} to {state}")
            if before is not None and state.leader != before.leader and state.leader_epoch == before.leader_epoch:
                raise Violation(f"{key}: the leader changed within epoch {state.leader_epoch}")

    def _check(self, broker_id: int, partition: Partition, replica: _Replica, seen: _Seen) -> None:
        key, before = partition.topic_partition, replica.seen
        if before is None or before.log_epoch != seen.log_epoch:
            replica.records, replica.agreed_end = [], 0
        _read_on(partition.log, replica.records)
        committed = self.committed.setdefault(key, [])
        epochs = self._committed_in.setdefault(key, [])
        if seen.is_leader:
            leader = self._leaders.setdefault((key, seen.leader_epoch), broker_id)
            if leader != broker_id:
                raise Violation(f"{key}: brokers {leader} and {broker_id} both lead in epoch {seen.leader_epoch}")
            if before is None or not before.is_leader or before.leader_epoch != seen.leader_epoch:
                due = sum(1 for epoch in epochs if epoch < seen.leader_epoch)
                if replica.records[:due] != committed[:due]:
                    raise Violation(
                        f"{key}: broker {broker_id} leads in epoch {seen.leader_epoch} without all that is committed"
                    )
            elif seen.high_watermark < before.high_watermark:
                raise Violation(f"{key}: the high watermark of leader {broker_id} fell")
        if self._is_doubtful(broker_id, key):
            return
        start, end = replica.agreed_end, seen.high_watermark
        shared = min(end, len(committed))
        if replica.records[start:shared] != committed[start:shared]:
            raise Violation(f"{key}: broker {broker_id} holds another committed prefix than was agreed on")
        if end > len(committed):
            epochs += [seen.leader_epoch] * (end - len(committed))
            committed += replica.records[len(committed) : end]
        replica.agreed_end = max(end, start)

    def _is_doubtful(self, broker_id: int, key: TopicPartition) -> bool:
        if (broker_id, key) not in self._doubtful:
            return False
        state = self._cluster.state(key)
        assert state is not None
        if broker_id not in state.isr or self._cluster.recorded(state, broker_id) != str(
            self._cluster.generations[broker_id]
        ):
            return True
        self._doubtful.discard((broker_id, key))
        return False

    def at_the_end(self) -> None:
        for key, replicas in self._cluster.assigned.items():
            state = self._cluster.state(key)
            if state is None or set(state.isr) != set(replicas):
                raise Violation(f"{key}: after all is healed its state is {state}, its replicas are {replicas}")
            logs = {one: self._cluster.brokers[one].partitions.get(*key).log for one in replicas}
            contents = {one: _read_on(log, []) for one, log in logs.items()}
            first = contents[replicas[0]]
            for one, records in contents.items():
                if records != first:
                    raise Violation(f"{key}: broker {one} and {replicas[0]} hold different logs")
            if first[: len(self.committed[key])] != self.committed[key]:
                raise Violation(f"{key}: something committed is gone")
            for (acked_key, offset), value in self.acked.items():
                if acked_key == key and (offset >= len(first) or not first[offset].endswith(value)):
                    raise Violation(f"{key}: {value!r} was acknowledged at {offset} and is not there")


def _read_on(log: PartitionLog, records: list[bytes]) -> list[bytes]:
    """Each record's epoch and value from where `records` ends to the log's end."""
    while len(records) < log.end_offset:
        found = log.read(len(records), bytes_max=1 << 20, bound=Bound.LOG_END).slice
        assert found is not None
        data = found.read()
        for batch in scan(data).batches:
            rows = payload.columns(data, *records_slice(batch), batch.record_count)
            for number, (start, length) in enumerate(zip(rows.value_start, rows.value_length, strict=True)):
                if batch.base_offset + number == len(records):
                    records.append(b"%d %d " % (batch.leader_epoch, batch.crc) + data[start : start + length])
    return records
