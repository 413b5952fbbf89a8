"""Calls between brokers as a broker serves them: a follower's fetch, roles, who may make them (pitfall A10), racks."""

import uuid
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.world import World, shape

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import (
    ControlledShutdown,
    IsrChange,
    IsrMember,
    IsrRequest,
    LeaderAndIsr,
    PartitionState,
    PeerRequest,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from penstock.drivers.followers import Answers, Followers, Offsets
from penstock.drivers.isr import IsrDriver
from penstock.drivers.replicas import Replicas
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action
from penstock.handlers.fetch import handle_fetch
from penstock.handlers.list_offsets import handle_list_offsets
from penstock.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from penstock.handlers.produce import handle_produce
from penstock.handlers.registry import make_registry
from penstock.handlers.services import ClusterServices
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.peers import messages
from penstock.peers.messages import Call
from penstock.protocol.fetch import FetchAnswer, FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.produce import ProduceAnswer, ProducePartition, ProduceRequest, ProduceTopic
from penstock.records.build import build_batch
from penstock.replication.fetcher import Asked, Got
from penstock.replication.isr import Proposal
from penstock.replication.partition import Partition
from penstock.server.dispatch import Dispatcher, Waiting

TOPIC_ID = uuid.UUID(int=9)


class Controller:
    def alter_partition(self, request: IsrRequest, done: Any) -> None:
        done(NotControllerError("elsewhere"))

    def shut_down(self, request: ControlledShutdown, done: Any) -> None:
        done([TopicPartition("t", 0)])


class Isr(IsrDriver):
    """Keeps what was proposed."""

    def __init__(self) -> None:
        self.proposed: list[Proposal] = []

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self.proposed.append(proposal)


class Leader:
    """The way to whoever leads in this broker's place: what is asked there waits for the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Asked], Answers]] = []

    def fetch(self, asked: list[Asked], done: Answers) -> None:
        self.asked.append((asked, done))

    def offsets(self, asked: Asked, done: Offsets) -> None: ...

    def close(self) -> None: ...


class Broker:
    """Broker 1 leads a partition that 2 and 3 follow; 1 is in rack a, the others in b."""

    def __init__(self, data: Path) -> None:
        self.world = world = World(data)
        nothing: Any = None
        self.leader = Leader()
        followers = Followers(
            loop=world.loop,
            clock=world.clock,
            cutter=world.directories,
            flushes=world.services.flushes,
            backoff_ms=100,
            open_channel=lambda _leader: self.leader,
            moved=world.holdings.changed,
        )
        self.replicas = Replicas(
            node_id=1,
            loop=world.loop,
            clock=world.clock,
            image=world.image,
            holdings=world.holdings,
            followers=followers,
            roles_changed=lambda _topics: None,
        )
        self.replicas.broker_epoch = 10
        self.isr = Isr()
        world.services.cluster = ClusterServices(
            replicas=self.replicas,
            isr=self.isr,
            controller=cast(Any, Controller()),
            questions=nothing,
            reads_from_nearest=True,
        )
        self._dispatch = Dispatcher(make_registry(cluster=True), world.services).dispatch
        self.call(messages.write_request(roles()))
        brokers = tuple(
            BrokerNode(
                broker_id=one,
                endpoints=(Endpoint(listener="L", security_protocol="PLAINTEXT", host="h", port=one),),
                rack="a" if one == 1 else "b",
            )
            for one in (1, 2, 3)
        )
        self.call(messages.write_request(UpdateMetadata(**HEAD, partitions=(state(),), brokers=brokers)))
        self.partition = world.partitions.get("t", 0)

    def call(self, call: Call) -> Any:
        head = call.api_key.to_bytes(2, "big") + call.version.to_bytes(2, "big") + b"\x00\x00\x00\x07\x00\x01c\x00"
        outcome: Any = self._dispatch(head + call.body, self.world._peer)
        if isinstance(outcome, Waiting):
            answers: list[Any] = []
            waiting = outcome
            waiting.pending.listen(lambda answer: answers.append(waiting.encode(answer)))
            self.world.loop.turn()
            (outcome,) = answers
        assert isinstance(outcome, bytes)
        return call_codec(call.api_key, call.version).decode(outcome[9:])

    def ask(
        self,
        replica_id: int,
        offset: int,
        *,
        rack: str = "",
        replica_epoch: int = 5,
        leader_epoch: int = -1,
        last_epoch: int = -1,
        wait_ms: int = 0,
        log_start_offset: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> FetchAnswer | Pending[FetchAnswer]:
        entry = FetchPartition(0, leader_epoch, offset, last_epoch, log_start_offset, 1_000)
        topics = [FetchTopic("", TOPIC_ID.bytes, [entry])] if session[1] <= 0 else []
        request = FetchRequest(replica_id, replica_epoch, wait_ms, 1, 10_000, 0, *session, topics, [], rack, None)
        return handle_fetch(request, Context(self.world.services, self.world._peer, 1, 17, None))

    def fetch(self, replica_id: int, offset: int, **asked: Any) -> FetchAnswer:
        answer = self.ask(replica_id, offset, **asked)
        assert isinstance(answer, FetchAnswer)
        return answer

    def write(self, count: int) -> None:
        for _ in range(count):
            self.partition.append(bytearray(build_batch([(self.world.clock.wall_ms(), None, b"x", ())])), 1)


HEAD: Any = {"controller_id": 3, "controller_epoch": 1, "broker_epoch": 10}


def state(**changed: Any) -> PartitionState:
    values: dict[str, Any] = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": 0,
        "isr": (1, 2),
        "partition_epoch": 0,
        "replicas": (1, 2, 3),
    }
    return PartitionState(**{**values, **changed})


def roles(**changed: Any) -> LeaderAndIsr:
    return LeaderAndIsr(**HEAD, partitions=(state(**changed),), live_leaders=())


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_a_followers_fetch_reads_to_the_logs_end_and_moves_the_watermark(broker: Broker) -> None:
    broker.write(2)
    found = broker.fetch(2, 0).topics[0].partitions[0]
    assert found.error_code == 0
    assert found.records
    assert broker.partition.log.high_watermark == 0
    broker.fetch(2, 2)
    assert broker.partition.log.high_watermark == 2
    assert broker.isr.proposed == []
    broker.fetch(3, 2)
    assert [one.isr for one in broker.isr.proposed] == [(1, 2, 3)]
    assert broker.fetch(4, 0).topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition


def test_a_follower_whose_log_parted_is_told_where_and_counts_for_nothing(broker: Broker) -> None:
    broker.write(1)
    broker.partition.take_role(leader=1, leader_epoch=4, isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1)
    broker.write(2)
    parted = broker.fetch(2, 3, last_epoch=2).topics[0].partitions[0]
    assert parted.diverging_epoch == (0, 1)
    assert parted.records == b""
    assert broker.partition.log.high_watermark == 0  # KAFKA-13141: it has other records at 1 and 2
    assert broker.fetch(3, 3, last_epoch=2).topics[0].partitions[0].diverging_epoch == (0, 1)
    assert broker.isr.proposed == []
    broker.fetch(2, 3, last_epoch=4)
    assert broker.partition.log.high_watermark == 3


def test_a_follower_of_another_epoch_is_refused_and_counts_for_nothing(broker: Broker) -> None:
    broker.partition.take_role(leader=1, leader_epoch=4, isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1)
    broker.write(2)
    for epoch, refused in ((3, ErrorCode.fenced_leader_epoch), (5, ErrorCode.unknown_leader_epoch)):
        found = broker.fetch(2, 2, leader_epoch=epoch).topics[0].partitions[0]
        assert (found.error_code, found.records) == (refused, b"")  # KAFKA-7395
    assert broker.partition.log.high_watermark == 0
    assert broker.fetch(2, 2, leader_epoch=4).topics[0].partitions[0].error_code == ErrorCode.none
    assert broker.partition.log.high_watermark == 2


def test_who_does_not_lead_says_so_and_not_that_an_offset_is_out_of_range(broker: Broker) -> None:
    """Or a follower that is ahead of it would cut its log, during a change of leaders."""
    broker.write(2)
    broker.partition.take_role(leader=2, leader_epoch=1, isr=(1, 2), replicas=(1, 2, 3))
    for offset in (0, 9):
        found = broker.fetch(3, offset).topics[0].partitions[0]
        assert found.error_code == ErrorCode.not_leader_or_follower  # KAFKA-2143
    assert latest_of(broker, 3) == (ErrorCode.not_leader_or_follower, -1)


def test_an_append_that_moves_the_watermark_is_acknowledged_no_sooner_than_its_own_records_are_committed(
    broker: Broker,
) -> None:
    broker.fetch(3, 0)
    broker.write(2)
    broker.fetch(2, 2)
    followers = broker.partition.followers
    assert followers is not None
    followers.withdraw()  # as a refused newcomer leaves it: the next look moves the watermark to what 2 has
    assert broker.partition.log.high_watermark == 0
    records = memoryview(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])))
    topic = ProduceTopic("t", TOPIC_ID.bytes, [ProducePartition(0, records)])
    request = ProduceRequest(None, -1, 30_000, [topic])
    pending = handle_produce(request, Context(broker.world.services, broker.world._peer, 1, 9, None))
    assert broker.partition.log.high_watermark == 2
    assert isinstance(pending, Pending)
    answers: list[ProduceAnswer] = []
    pending.listen(answers.append)
    broker.world.loop.turn()
    assert answers == []
    broker.fetch(2, 3)
    broker.world.loop.turn()
    assert [one.topics[0].partitions[0].base_offset for one in answers] == [2]


def test_a_consumer_is_sent_to_a_replica_in_its_rack(broker: Broker) -> None:
    broker.write(1)
    broker.fetch(2, 1)
    near = broker.fetch(-1, 0, rack="b").topics[0].partitions[0]
    assert (near.preferred_read_replica, near.records) == (2, b"")
    here = broker.fetch(-1, 0, rack="a").topics[0].partitions[0]
    assert here.preferred_read_replica == -1
    assert here.records
    ahead = broker.fetch(-1, 1, rack="b").topics[0].partitions[0]
    assert ahead.preferred_read_replica == 2
    assert broker.fetch(-1, 0).topics[0].partitions[0].preferred_read_replica == -1


def test_a_session_tells_of_a_nearer_replica_though_nothing_else_changed(broker: Broker) -> None:
    """Or the consumer would ask again at once, and again, and never hear of it."""
    broker.write(1)
    broker.fetch(2, 1)
    broker.partition.take_role(leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2, 3), partition_epoch=1)
    first = broker.fetch(-1, 1, rack="b", session=(0, 0))
    assert first.topics[0].partitions[0].preferred_read_replica == -1, "there is none in sync"
    broker.partition.confirm_isr(1, (1, 2), 2)
    broker.fetch(2, 1)
    (topic,) = broker.fetch(-1, 1, rack="b", session=(first.session_id, 1)).topics
    assert topic.partitions[0].preferred_read_replica == 2


def test_whoever_waits_at_a_follower_is_woken_by_the_watermark_that_its_leader_tells(broker: Broker) -> None:
    """A consumer that reads from the nearest replica."""
    broker.write(2)
    broker.call(messages.write_request(roles(leader=2, leader_epoch=1, partition_epoch=1)))
    assert broker.partition.log.high_watermark == 0
    pending = broker.ask(-1, 0, wait_ms=60_000)
    assert isinstance(pending, Pending)
    answers: list[FetchAnswer] = []
    pending.listen(answers.append)
    broker.world.loop.turn()
    assert answers == []
    ((asked, answered),) = broker.leader.asked
    answered([Got(asked[0].topic_partition, None, 2, 0, None, b"")])
    broker.world.loop.turn()
    assert [one.topics[0].partitions[0].high_watermark for one in answers] == [2]  # KAFKA-14334
    assert answers[0].topics[0].partitions[0].records


def test_whoever_waits_for_a_replica_that_is_stopped_is_told_at_once(broker: Broker) -> None:
    pending = broker.ask(-1, 0, wait_ms=60_000)
    records = memoryview(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])))
    topic = ProduceTopic("t", TOPIC_ID.bytes, [ProducePartition(0, records)])
    context = Context(broker.world.services, broker.world._peer, 1, 9, None)
    written = handle_produce(ProduceRequest(None, -1, 60_000, [topic]), context)
    answers: list[Any] = []
    for waiting in (pending, written):
        assert isinstance(waiting, Pending)
        waiting.listen(answers.append)
    broker.world.loop.turn()
    assert answers == []
    broker.call(messages.write_request(STOP))
    codes = [one.topics[0].partitions[0].error_code for one in answers]
    assert codes == [ErrorCode.not_leader_or_follower] * 2  # KAFKA-9198


def test_a_follower_serves_consumers_up_to_its_watermark(broker: Broker) -> None:
    broker.write(2)
    broker.fetch(2, 1)
    broker.partition.take_role(leader=2, leader_epoch=1, isr=(1, 2), replicas=(1, 2, 3))
    found = broker.fetch(-1, 0).topics[0].partitions[0]
    assert (found.error_code, found.high_watermark) == (0, 1)
    assert found.records
    beyond = broker.fetch(-1, 1).topics[0].partitions[0]
    assert (beyond.error_code, beyond.records) == (0, b"")


def latest_of(
    broker: Broker, replica_id: int, *, timestamp: int = -1, version: int = 9, isolation: int = 0
) -> tuple[ErrorCode, int]:
    make = shape(2, version)
    entry = make.topics.partitions.make(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topics = (make.topics.make(name="t", partitions=(entry,)),)
    request = make.make(replica_id=replica_id, isolation_level=isolation, topics=topics)
    answer = handle_list_offsets(request, Context(broker.world.services, broker.world._peer, 2, version, None))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


def test_a_broker_is_told_the_logs_end_as_latest_and_a_client_is_not(broker: Broker) -> None:
    broker.write(3)
    assert [latest_of(broker, replica_id)[1] for replica_id in (2, -1)] == [3, 0]
    broker.world.authoriser.denied.add((Action.CLUSTER_ACTION, "kafka-cluster"))
    assert latest_of(broker, 2) == (ErrorCode.none, 0)  # A10


def lead_after_another(broker: Broker) -> None:
    """Broker 2 led, and told readers of the four records; here it is not known yet that the last two are committed."""
    broker.call(messages.write_request(roles(leader=2, leader_epoch=1, partition_epoch=1)))
    for offset in range(4):
        at_ms = broker.world.clock.wall_ms() + offset
        broker.partition.log.append_as_follower(
            build_batch([(at_ms, None, b"x", ())], base_offset=offset, leader_epoch=1)
        )
    broker.partition.follow(2, 0)
    broker.call(messages.write_request(roles(leader_epoch=2, partition_epoch=2)))


@pytest.mark.parametrize(
    ("version", "expected"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
)
def test_a_new_leader_tells_readers_no_end_that_is_below_what_the_leader_before_told(
    broker: Broker, version: int, expected: ErrorCode
) -> None:
    lead_after_another(broker)  # KIP-207
    now_ms = broker.world.clock.wall_ms()
    for isolation in (0, 1):
        assert latest_of(broker, -1, version=version, isolation=isolation) == (expected, -1)
    for beyond in (now_ms + 2, now_ms + 9):
        assert latest_of(broker, -1, version=version, timestamp=beyond) == (expected, -1)
    assert latest_of(broker, -1, version=version, timestamp=now_ms + 1) == (ErrorCode.none, 1)
    assert latest_of(broker, -1, version=version, timestamp=-2) == (ErrorCode.none, 0)
    assert latest_of(broker, 2, version=version) == (ErrorCode.none, 4)
    broker.write(1)
    broker.fetch(2, 4, leader_epoch=2)
    assert broker.partition.log.high_watermark == 4
    assert latest_of(broker, -1, version=version) == (ErrorCode.none, 4), "and what it wrote itself, nobody was told of"
    assert latest_of(broker, -1, version=version, timestamp=now_ms + 9) == (ErrorCode.none, -1)


def test_a_new_leader_does_not_know_the_largest_timestamp_either(broker: Broker) -> None:
    lead_after_another(broker)
    assert latest_of(broker, -1, timestamp=-3) == (ErrorCode.offset_not_available, -1)
    broker.fetch(2, 4, leader_epoch=2)
    assert latest_of(broker, -1, timestamp=-3) == (ErrorCode.none, 3)


def test_a_new_leader_that_is_in_sync_alone_knows_at_once(broker: Broker) -> None:
    lead_after_another(broker)
    broker.call(messages.write_request(roles(leader_epoch=3, partition_epoch=3, isr=(1,))))
    assert latest_of(broker, -1) == (ErrorCode.none, 4)


def test_a_leader_that_leads_on_in_a_new_epoch_goes_on_telling(broker: Broker) -> None:
    broker.write(2)
    broker.fetch(2, 1)
    broker.call(messages.write_request(roles(leader_epoch=1, partition_epoch=1)))
    assert latest_of(broker, -1) == (ErrorCode.none, 1)


def test_where_an_epoch_ended_is_told_to_a_replica_only_if_a_client_would_be_told(broker: Broker) -> None:
    # A10
    make = shape(23, 4)
    entry = make.topics.partitions.make(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = make.make(replica_id=2, topics=(make.topics.make(topic="t", partitions=(entry,)),))
    context = Context(broker.world.services, broker.world._peer, 23, 4, None)
    told = []
    for denied in (set[tuple[Action, str]](), {(Action.DESCRIBE, "t")}):
        broker.world.authoriser.denied = denied
        found = handle_offset_for_leader_epoch(request, context).topics[0].partitions[0]
        told.append((found.error_code, found.end_offset))
    assert told == [(ErrorCode.none, 0), (ErrorCode.topic_authorization_failed, -1)]


STOP = StopReplica(**HEAD, partitions=(StoppedPartition(topic="t", partition=0, leader_epoch=0, delete=False),))
REQUESTS: list[PeerRequest] = [roles(), STOP, UpdateMetadata(**HEAD, partitions=(), brokers=())]


def test_who_is_no_broker_is_refused_everything_between_brokers(broker: Broker) -> None:
    # A10
    broker.world.authoriser.denied.add((Action.CLUSTER_ACTION, "kafka-cluster"))
    refused = ErrorCode.cluster_authorization_failed
    for request in REQUESTS:
        assert broker.call(messages.write_request(request)).error_code == refused
    assert broker.partition.is_leader
    shut_down = messages.write_controlled_shutdown(ControlledShutdown(broker_id=2, broker_epoch=1))
    assert broker.call(shut_down).error_code == refused
    change = IsrChange(
        topic_id=TOPIC_ID,
        partition=0,
        leader_epoch=0,
        partition_epoch=0,
        new_isr=(IsrMember(broker_id=1, broker_epoch=10),),
    )
    alter = messages.write_isr_request(IsrRequest(broker_id=1, broker_epoch=10, changes=(change,)))
    assert broker.call(alter).error_code == refused
    broker.write(1)
    assert broker.fetch(2, 0).topics[0].partitions[0].error_code == ErrorCode.topic_authorization_failed


def test_answers_name_each_partition(broker: Broker) -> None:
    answer = broker.call(messages.write_request(roles()))
    assert answer.error_code == ErrorCode.none
    assert [one.error_code for one in answer.topics[0].partition_errors] == [ErrorCode.none]
    stale = broker.call(
        messages.write_request(
            LeaderAndIsr(controller_id=3, controller_epoch=0, broker_epoch=10, partitions=(state(),), live_leaders=())
        )
    )
    assert stale.error_code == ErrorCode.stale_controller_epoch
    shut_down = broker.call(messages.write_controlled_shutdown(ControlledShutdown(broker_id=2, broker_epoch=1)))
    assert [(one.topic_name, one.partition_index) for one in shut_down.remaining_partitions] == [("t", 0)]
    stopped = broker.call(messages.write_request(STOP))
    assert [one.error_code for one in stopped.partition_errors] == [ErrorCode.none]
    assert broker.world.partitions.find("t", 0) is None


def test_a_broker_that_is_not_the_controller_says_so(broker: Broker) -> None:
    alter = messages.write_isr_request(IsrRequest(broker_id=1, broker_epoch=10, changes=()))
    assert broker.call(alter).error_code == ErrorCode.not_controller


def test_a_node_of_its_own_serves_none_of_it(tmp_path: Path) -> None:
    # A10
    assert {4, 5, 6, 7, 56}.isdisjoint(make_registry())
    assert {4, 5, 6, 7, 56} <= make_registry(cluster=True).keys()
    with pytest.raises(PenstockError):
        World(tmp_path).send_frame(b"\x00\x04\x00\x07\x00\x00\x00\x07\x00\x01c\x00")
