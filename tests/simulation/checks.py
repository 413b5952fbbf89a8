"""What must hold after every step, whatever happens to the brokers.

- One controller at most acts in a controller epoch; epochs rise; a leader is in its ISR.
- One broker at most leads in a leader epoch, and it has everything that was ever committed.
- What any replica holds below its high watermark is what every other held there: the committed prefix is agreed on. (One
  whose disk forgot something may hold what it had before a cut, until it is in sync again: nobody trusts it meanwhile.)
- A leader's high watermark never falls.
- At the end, when all is healed: every replica has the same bytes, everybody is in sync, everything acknowledged is there
  where it was acknowledged, what an idempotent producer wrote is there once and in its order, brokers know the topics
  there are and no others, and no disk holds what nobody was assigned.

Of a topic for which unclean elections are allowed nothing is promised of its records, but that its replicas agree in the end.
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
    from tests.simulation.clients import Idempotent
    from tests.simulation.cluster import SimCluster

LOOSE = "u"
"""A topic that anybody may lead now and then: of it nothing is promised but that it heals."""


class Place(NamedTuple):
    """One partition of one topic, which another of the same name is not."""

    topic_id: bytes
    key: TopicPartition


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

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.records: list[bytes] = []
        self.seen: _Seen | None = None
        self.agreed_end = 0


class Checks:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._replicas: dict[tuple[int, Place], _Replica] = {}
        self.committed: dict[Place, list[bytes]] = {}
        self._committed_in: dict[Place, list[int]] = {}
        """In which leader epoch each was: a leader that hears of its epoch late need not have what was written since."""
        self._leaders: dict[tuple[Place, int], int] = {}
        self._zxid = -1
        self._controllers: dict[int, int] = {}
        self._states: dict[Place, PartitionState] = {}
        self._doubtful: set[tuple[int, Place]] = set()
        self.acked: dict[tuple[Place, int], bytes] = {}

    def acknowledged(self, place: Place, base_offset: int, values: list[bytes]) -> None:
        if place.key.topic == LOOSE:
            return
        for number, value in enumerate(values):
            known = self.acked.setdefault((place, base_offset + number), value)
            if known != value:
                raise Violation(f"{place.key} offset {base_offset + number} was acknowledged for two records")

    def refused(self, place: Place, what: str) -> None:
        """A leader said that something is missing before what it was sent."""
        if place.key.topic != LOOSE:
            raise Violation(f"{place.key}: {what}: what was acknowledged before it is gone")

    def forgot(self, broker_id: int) -> None:
        """Its disks may have lost what was not synced."""
        self._doubtful.update((broker_id, place) for place in self._cluster.assigned)

    def doubts(self, topic: str) -> bool:
        """Whether a broker that forgot something is not known to have all of this topic again."""
        return any(place.key.topic == topic for _, place in self._doubtful)

    def died(self, broker_id: int, *, power: bool) -> None:
        if power:
            self.forgot(broker_id)
        for holder, place in list(self._replicas):
            if holder == broker_id:
                del self._replicas[holder, place]

    def after_a_step(self) -> None:
        zxid = self._cluster.tree.tree.zxid
        if zxid != self._zxid:
            self._zxid = zxid
            self._cluster.look()
            self._check_store()
        for broker_id, broker in self._cluster.brokers.items():
            if broker.loop is not self._cluster.events.ran:
                continue
            for partition in broker.partitions:
                place = Place(partition.topic_id, partition.topic_partition)
                if place not in self._cluster.assigned:
                    continue  # of a topic that is going
                log = partition.log
                if broker.files.is_broken(log.directory):
                    continue  # nobody can say what it holds
                replica = self._replicas.get((broker_id, place))
                if replica is None or replica.log is not log:
                    replica = self._replicas[broker_id, place] = _Replica(log)
                seen = _Seen(log.end_offset, log.epoch, log.high_watermark, partition.leader_epoch, partition.is_leader)
                if seen != replica.seen:
                    self._check(broker_id, place, partition, replica, seen)
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
        for place in self._cluster.assigned:
            state = self._cluster.state(place.key)
            before = self._states.get(place)
            if state is None or state == before:
                continue
            key = place.key
            self._states[place] = state
            self._cluster.events.note(f"{key} leader={state.leader} epoch={state.leader_epoch} isr={state.isr}")
            if state.leader >= 0 and state.leader not in state.isr:
                raise Violation(f"{key}: leader {state.leader} is not in the ISR {state.isr}")
            if before is not None and (
                state.leader_epoch < before.leader_epoch or state.controller_epoch < before.controller_epoch
            ):
                raise Violation(f"{key}: an epoch fell, from {before} to {state}")
            if before is not None and state.leader != before.leader and state.leader_epoch == before.leader_epoch:
                raise Violation(f"{key}: the leader changed within epoch {state.leader_epoch}")

    def _check(self, broker_id: int, place: Place, partition: Partition, replica: _Replica, seen: _Seen) -> None:
        key, before = place.key, replica.seen
        if before is None or before.log_epoch != seen.log_epoch:
            replica.records, replica.agreed_end = [], 0
        if seen.is_leader:
            leader = self._leaders.setdefault((place, seen.leader_epoch), broker_id)
            if leader != broker_id:
                raise Violation(f"{key}: brokers {leader} and {broker_id} both lead in epoch {seen.leader_epoch}")
        if key.topic == LOOSE:
            return
        _read_on(partition.log, replica.records)
        committed = self.committed.setdefault(place, [])
        epochs = self._committed_in.setdefault(place, [])
        if seen.is_leader:
            if before is None or not before.is_leader or before.leader_epoch != seen.leader_epoch:
                due = sum(1 for epoch in epochs if epoch < seen.leader_epoch)
                if replica.records[:due] != committed[:due]:
                    raise Violation(
                        f"{key}: broker {broker_id} leads in epoch {seen.leader_epoch} without all that is committed"
                    )
            elif seen.high_watermark < before.high_watermark:
                raise Violation(f"{key}: the high watermark of leader {broker_id} fell")
        if self._is_doubtful(broker_id, place):
            return
        start, end = replica.agreed_end, seen.high_watermark
        shared = min(end, len(committed))
        if replica.records[start:shared] != committed[start:shared]:
            raise Violation(f"{key}: broker {broker_id} holds another committed prefix than was agreed on")
        if end > len(committed):
            epochs += [seen.leader_epoch] * (end - len(committed))
            committed += replica.records[len(committed) : end]
        replica.agreed_end = max(end, start)

    def _is_doubtful(self, broker_id: int, place: Place) -> bool:
        if (broker_id, place) not in self._doubtful:
            return False
        state = self._cluster.state(place.key)
        if state is None:
            return True
        if broker_id not in state.isr or (
            self._cluster.recorded(state, broker_id) != self._cluster.generations[broker_id]
        ):
            return True
        self._doubtful.discard((broker_id, place))
        return False

    # When all is healed.
    def at_the_end(self) -> None:
        if self._cluster.going:
            raise Violation(f"after all is healed topics are still going: {self._cluster.going}")
        for place, replicas in self._cluster.assigned.items():
            key = place.key
            state = self._cluster.state(key)
            if state is None or set(state.isr) != set(replicas):
                raise Violation(f"{key}: after all is healed its state is {state}, its replicas are {replicas}")
            logs = {one: self._cluster.brokers[one].partitions.get(*key).log for one in replicas}
            contents = {one: _read_on(log, []) for one, log in logs.items()}
            first = contents[replicas[0]]
            for one, records in contents.items():
                if records != first:
                    raise Violation(f"{key}: broker {one} and {replicas[0]} hold different logs")
            if key.topic != LOOSE:
                self._check_kept(place, first)
        self._check_brokers()

    def _check_kept(self, place: Place, records: list[bytes]) -> None:
        committed = self.committed.get(place, [])
        if records[: len(committed)] != committed:
            raise Violation(f"{place.key}: something committed is gone")
        for (acked_place, offset), value in self.acked.items():
            if acked_place == place and (offset >= len(records) or not records[offset].endswith(b" " + value)):
                raise Violation(f"{place.key}: {value!r} was acknowledged at {offset} and is not there")
        producer = self._cluster.clients.idempotent.get(place)
        if producer is not None:
            self._check_once(place, producer, records)

    @staticmethod
    def _check_once(place: Place, producer: Idempotent, records: list[bytes]) -> None:
        """Each once and in order; of what was sent last nobody heard, so it may be there or not."""
        mine = b"%d:" % producer.producer_id
        found = [int(value[len(mine) :]) for one in records if (value := one.split(b" ", 2)[2]).startswith(mine)]
        if found != list(range(len(found))) or not producer.sequence <= len(found):
            raise Violation(f"{place.key}: of an idempotent producer's {producer.sequence} records there are {found}")

    def _check_brokers(self) -> None:
        topics = {place.key.topic for place in self._cluster.assigned}
        for broker_id, broker in self._cluster.brokers.items():
            if broker.image.topics.keys() != topics:
                raise Violation(f"broker {broker_id} knows {sorted(broker.image.topics)}, there are {sorted(topics)}")
            wanted = {place.key for place, replicas in self._cluster.assigned.items() if broker_id in replicas}
            if broker.directories.logs.keys() != wanted:
                raise Violation(
                    f"broker {broker_id} holds {sorted(broker.directories.logs)}, assigned: {sorted(wanted)}"
                )
            found = [name for path in self._cluster.paths for name in broker.files.list(path)]
            strays = [name for name in found if name.endswith("-stray")]
            if strays:
                raise Violation(f"broker {broker_id} took logs for strays: {strays}")


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
