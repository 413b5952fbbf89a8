"""What a broker does that the controller speaks to: roles, refusals, ends, and how ISR changes reach the controller (rows R2, R5, C3)."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.controller.world import broker as make_broker
from tests.unit.handlers.world import World

from penstock.base.errors import PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import (
    BrokerNotAvailableError,
    IneligibleReplicaError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from penstock.controller.peer_requests import (
    EPOCH_DURING_DELETION,
    LEADER_DURING_DELETION,
    IsrChange,
    IsrChanged,
    LeaderAndIsr,
    PartitionState,
    PeerAnswer,
    PeerRequest,
    RequestType,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from penstock.drivers import doubts
from penstock.drivers.doubts import Doubts
from penstock.drivers.followers import Answers, Followers, Offsets
from penstock.drivers.isr import RETRY_MS, IsrDriver
from penstock.drivers.replicas import Replicas
from penstock.peers.errors import PeerUnreachableError
from penstock.records.build import build_batch
from penstock.replication.errors import InconsistentTopicIdError, UnknownTopicOrPartitionError
from penstock.replication.fetcher import Asked
from penstock.replication.partition import Partition
from penstock.storage import checkpoints
from penstock.storage.directory_state import DirectoryState
from penstock.storage.partition_log import PartitionLog

TOPIC_ID = uuid.UUID(int=9)
KEY = TopicPartition("t", 0)
LAG_MS = 1_000


class Leader:
    """A way to a leader on which everything waits until the test answers."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.asked: list[tuple[list[Asked], Answers]] = []
        self.is_closed = False

    def fetch(self, asked: list[Asked], done: Answers) -> None:
        self.asked.append((asked, done))

    def offsets(self, asked: Asked, done: Offsets) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class ControllerDouble:
    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[IsrChange], Callable[[Sequence[IsrChanged] | PenstockError], object]]] = []

    def alter(
        self, changes: Sequence[IsrChange], done: Callable[[Sequence[IsrChanged] | PenstockError], object]
    ) -> None:
        self.asked.append((changes, done))


class Broker:
    """Broker 1 of a cluster, without the others."""

    def __init__(self, *data: Path) -> None:
        self.data = str(data[0])
        self.world = world = World(*data)
        self.leaders: list[Leader] = []
        self.followers = Followers(
            loop=world.loop,
            clock=world.clock,
            cutter=world.directories,
            flushes=world.services.flushes,
            backoff_ms=100,
            open_channel=self._open,
            moved=lambda _key: None,
        )
        self.roles: list[set[str]] = []
        self.gone: list[set[int]] = []
        self.replicas = Replicas(
            node_id=1,
            loop=world.loop,
            clock=world.clock,
            image=world.image,
            holdings=world.holdings,
            followers=self.followers,
            roles_changed=self.roles.append,
            brokers_gone=self.gone.append,
        )
        self.replicas.broker_epoch = 10
        self.controller = ControllerDouble()
        self.moved: list[TopicPartition] = []
        self.isr = IsrDriver(
            node_id=1,
            loop=world.loop,
            clock=world.clock,
            partitions=world.partitions,
            channel=self.controller,
            lag_ms_max=LAG_MS,
            broker_epoch=lambda: 10,
            moved=self.moved.append,
        )

    def _open(self, leader: int) -> Leader:
        self.leaders.append(Leader(leader))
        return self.leaders[-1]

    def take(self, request: PeerRequest) -> PeerAnswer:
        answers: list[PeerAnswer] = []
        self.replicas.take(request, answers.append)
        self.world.loop.turn()
        (answer,) = answers
        return answer

    def become(self, leader: int, epoch: int, **changed: Any) -> PeerAnswer:
        return self.take(roles(state(leader, epoch, **changed)))

    @property
    def partition(self) -> Partition:
        return self.world.partitions.get("t", 0)


def state(leader: int, epoch: int, **changed: Any) -> PartitionState:
    values: dict[str, Any] = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": (1, 2),
        "partition_epoch": epoch,
        "replicas": (1, 2),
    }
    return PartitionState(**{**values, **changed})


def roles(*states: PartitionState, controller_epoch: int = 1, broker_epoch: int = 10) -> LeaderAndIsr:
    return LeaderAndIsr(
        controller_id=3,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        partitions=states,
        live_leaders=(),
    )


def stop(epoch: int, *, delete: bool) -> StopReplica:
    one = StoppedPartition(topic="t", partition=0, leader_epoch=epoch, delete=delete)
    return StopReplica(controller_id=3, controller_epoch=1, broker_epoch=10, partitions=(one,))


def news(*states: PartitionState) -> UpdateMetadata:
    return UpdateMetadata(controller_id=3, controller_epoch=1, broker_epoch=10, partitions=states, brokers=())


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def test_leader_follower_leader(broker: Broker) -> None:
    led = []
    assert broker.become(1, 0) == PeerAnswer()
    led.append(broker.partition.is_leader)
    assert broker.leaders == []
    broker.become(2, 1)
    led.append(broker.partition.is_leader)
    (leader,) = broker.leaders
    assert leader.leader == 2
    assert [(one.leader_epoch, one.offset) for one in leader.asked[0][0]] == [(1, 0)]
    broker.become(1, 2)
    assert leader.is_closed, "a fetcher that follows nothing is let go"
    leader.asked[0][1]([])
    led.append(broker.partition.is_leader)
    assert led == [True, False, True]


def test_requests_that_are_out_of_date_change_nothing(broker: Broker) -> None:
    # KAFKA-1483, 1188, 7235
    broker.take(roles(state(1, 5), controller_epoch=7))
    assert isinstance(broker.become(2, 6).error, StaleControllerEpochError)
    assert isinstance(broker.take(roles(state(2, 6), controller_epoch=7, broker_epoch=9)).error, StaleBrokerEpochError)
    stale = broker.take(roles(state(2, 4), controller_epoch=7))
    assert stale.error is None
    assert isinstance(stale.partition_errors[KEY], StaleControllerEpochError)
    assert (broker.partition.leader, broker.partition.leader_epoch) == (1, 5)


def test_a_broker_without_a_registration_takes_no_role(broker: Broker) -> None:
    broker.replicas.broker_epoch = -1
    assert isinstance(broker.become(1, 0).error, BrokerNotAvailableError)
    assert broker.world.partitions.find("t", 0) is None


def test_a_partition_that_is_not_this_brokers_or_of_another_topic_is_refused(broker: Broker) -> None:
    elsewhere = broker.become(2, 0, replicas=(2, 3), isr=(2, 3))
    assert isinstance(elsewhere.partition_errors[KEY], UnknownTopicOrPartitionError)
    broker.become(1, 0)
    other = broker.become(1, 1, topic_id=uuid.UUID(int=10))
    assert isinstance(other.partition_errors[KEY], InconsistentTopicIdError)


def test_a_role_over_a_failed_log_is_taken_and_complained_of(broker: Broker) -> None:
    """The controller hears of a failed directory by the answer, and then says who leads in its place."""
    assert broker.become(1, 0) == PeerAnswer()
    (home,) = broker.world.directories.directories
    home.health.fail(OSError("Input/output error"))
    answer = broker.become(1, 0)
    assert isinstance(answer.partition_errors[KEY], StorageError)
    answer = broker.become(2, 1)
    assert isinstance(answer.partition_errors[KEY], StorageError)
    assert not broker.partition.is_leader, "coordinators of what it held end"
    assert broker.leaders == [], "nothing is fetched for it"


def test_a_replica_that_is_stopped_is_gone_and_its_files_where_that_is_said(broker: Broker) -> None:
    broker.become(2, 3)
    stale = broker.take(stop(2, delete=True))
    assert isinstance(stale.partition_errors[KEY], StaleControllerEpochError)
    broker.take(stop(3, delete=False))
    assert broker.world.partitions.find("t", 0) is None
    assert broker.leaders[0].is_closed
    assert broker.world.directories.get(KEY) is not None
    broker.become(2, 4)
    broker.take(stop(EPOCH_DURING_DELETION, delete=True))
    assert broker.world.directories.get(KEY) is None


@pytest.mark.parametrize("is_open", [True, False])
def test_a_log_in_a_directory_that_failed_is_not_said_to_be_gone(broker: Broker, is_open: bool) -> None:
    """It is there when the directory is back: a topic of its name must not be made before."""  # KAFKA-16157
    if is_open:
        broker.become(1, 0)
        broker.world.directories.home(KEY).health.fail(OSError("Input/output error"))
    else:
        broker.world.directories.offline["/elsewhere"] = "its disk is broken"
    for _ in range(2):
        answer = broker.take(stop(EPOCH_DURING_DELETION, delete=True))
        assert isinstance(answer.partition_errors[KEY], StorageError)
        assert broker.world.partitions.find(*KEY) is None


def test_what_may_come_back_after_a_crash_is_not_said_to_be_gone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.become(1, 0)
    (home,) = broker.world.directories.directories

    def fail(_path: str) -> None:
        raise OSError("Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(broker.world.files, "sync_directory", fail)
        answer = broker.take(stop(EPOCH_DURING_DELETION, delete=True))
    assert isinstance(answer.error, BrokerNotAvailableError)
    assert home.health.failure is not None
    answer = broker.take(stop(EPOCH_DURING_DELETION, delete=True))
    assert isinstance(answer.partition_errors[KEY], StorageError), "when the controller asks again"


def test_a_replica_that_is_stopped_for_a_while_keeps_its_watermark(broker: Broker) -> None:
    """As those of a broker that stops: its followers are stopped before it is."""
    broker.become(1, 0)
    broker.partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])), 1)
    broker.partition.fetched_by(2, 1, 1, 0, 0)
    broker.become(2, 1)
    broker.take(stop(1, delete=False))
    broker.world.directories.checkpoint()
    (home,) = broker.world.directories.directories
    path = f"{home.path}/replication-offset-checkpoint"
    assert checkpoints.read_offsets(broker.world.files, path) == {KEY: 1}  # KAFKA-858
    broker.become(2, 2)
    assert broker.partition.log.high_watermark == 1


def test_coordinators_hear_of_roles_when_every_partition_is_known(broker: Broker) -> None:
    broker.become(1, 0)
    assert broker.roles == []
    broker.take(news(state(1, 0), state(2, 0, topic="u", topic_id=uuid.UUID(int=11))))
    assert broker.roles == [{"t", "u"}]
    broker.become(2, 1)
    assert broker.roles[1:] == [{"t"}]


def test_a_topic_whose_roles_come_before_its_news_does_not_look_like_one_that_is_gone(broker: Broker) -> None:
    """Another broker's clients may know it, and have committed offsets of it here: they would be forgotten."""
    broker.take(news(state(1, 0)))
    late = state(1, 0, topic="late", topic_id=uuid.UUID(int=12))
    del broker.roles[:]
    broker.take(roles(late))
    broker.take(news(state(1, 1)))
    assert broker.roles == [set(), {"t"}]
    broker.take(news(late))
    assert broker.roles[2:] == [{"late"}]
    broker.take(news(replace(late, leader=LEADER_DURING_DELETION)))
    assert broker.roles[3:] == [{"late"}]
    broker.take(news(state(1, 2)))
    assert broker.roles[4:] == [{"t"}]


def test_what_clients_are_told(broker: Broker) -> None:
    image = broker.world.image
    broker.take(news(state(1, 0), state(2, 4, partition=1, offline_replicas=(2,))))
    assert image.controller_id == 3
    assert image.names_by_id[TOPIC_ID.bytes] == "t"
    told = image.partition("t", 1)
    assert told is not None
    assert (told.leader, told.leader_epoch) == (2, 4)
    assert image.offline_replicas["t", 1] == (2,)
    gone = [state(LEADER_DURING_DELETION, 0, partition=number) for number in (0, 1)]
    broker.take(news(*gone))
    assert "t" not in image.topics
    assert TOPIC_ID.bytes not in image.names_by_id


def in_doubt(broker: Broker, generation: str, offset: int) -> Doubts:
    """Partition 0 of the topic is, where its directory knows another generation; else what it says."""
    home = DirectoryState(broker.data, cast(Any, None), cast(Any, broker.world.files))
    return Doubts(cast(Any, broker.world.files), generation, [(home, {KEY: offset})])


def append_four(broker: Broker) -> PartitionLog:
    """Two of them are on disk."""
    broker.become(1, 0)
    log = broker.partition.log
    for _ in range(4):
        broker.partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])), 1)
        if log.end_offset == 2:
            log.flush()
    return log


def test_brokers_that_are_not_named_any_more_are_gone(broker: Broker) -> None:
    for ids in ((1, 2, 3), (1, 2), (1, 2, 4)):
        nodes = tuple(make_broker(one) for one in ids)
        broker.take(replace(news(), brokers=nodes))
    assert broker.gone == [{3}]


def test_a_log_in_doubt_is_cut_to_its_recovery_point_before_it_follows(broker: Broker) -> None:
    log = append_four(broker)
    broker.replicas.doubts = in_doubt(broker, "new", log.recovery_point)
    broker.become(1, 1)
    assert log.end_offset == 4, "a leader stays as it is"
    assert KEY not in broker.replicas.doubts
    broker.replicas.doubts = in_doubt(broker, "newer", log.recovery_point)
    assert broker.become(2, 2) == PeerAnswer()
    assert log.end_offset == 2
    assert broker.leaders[0].asked[0][0][0].offset == 2
    assert KEY not in broker.replicas.doubts
    assert KEY not in in_doubt(broker, "newer", log.recovery_point), "and not after a kill"


def test_a_clean_stop_makes_no_log_in_doubt_whole(broker: Broker) -> None:
    log = append_four(broker)
    in_doubt(broker, "new", 1)
    log.flush()
    broker.replicas.doubts = in_doubt(broker, "new", log.recovery_point)
    broker.become(2, 1)
    assert log.end_offset == 1


@pytest.mark.parametrize(("leader", "end_offset"), [(1, 4), (2, 1)])
def test_a_log_in_doubt_gets_no_role_before_the_disk_knows_that_it_is_settled(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, leader: int, end_offset: int
) -> None:
    """It would be cut once more after a kill, below what was acknowledged meanwhile."""
    log = append_four(broker)
    broker.replicas.doubts = in_doubt(broker, "new", 1)

    def fail(*_: object) -> None:
        raise OSError("the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(doubts, "write_atomically", fail)
        assert isinstance(broker.become(leader, 1).error, BrokerNotAvailableError), "the controller tries again"
    assert (broker.partition.leader_epoch, broker.leaders) == (0, [])
    assert log.end_offset == end_offset
    assert KEY in in_doubt(broker, "new", 1), "after a kill"


def test_a_directory_that_fails_while_doubts_are_settled_leaves_nobody_without_an_answer(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "first", tmp_path / "second")
    both = (state(1, 0), state(1, 0, partition=1))
    broker.take(roles(*both))
    directories = broker.world.directories
    logs = [(directories.home(one.topic_partition), one.topic_partition) for one in both]
    for _, key in logs:
        partition = broker.world.partitions.get(*key)
        partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())] * 2)), 1)
        partition.log.flush()  # so that a cut has checkpoints to lower
    assert logs[0][0] is not logs[1][0]
    known = [(home, {key: 1}) for home, key in logs]
    broker.replicas.doubts = Doubts(cast(Any, broker.world.files), "new", known)
    answers: list[PeerAnswer] = []
    broker.replicas.take(roles(*(replace(one, leader=2, leader_epoch=1) for one in both)), answers.append)
    assert answers == [], "the first cut waits for its thread"
    logs[1][0].health.fail(OSError("the disk is broken"))
    broker.world.loop.turn()
    assert [type(one.error) for one in answers] == [BrokerNotAvailableError], "the controller tries again"


def test_a_doubt_does_not_pass_on_to_a_new_log_of_the_name(broker: Broker) -> None:
    """The topic was deleted while this broker was away: its log in doubt went, and the next topic's was never in doubt."""
    broker.replicas.doubts = known = in_doubt(broker, "new", 1)
    assert broker.become(2, 0) == PeerAnswer()
    assert KEY not in known
    assert KEY not in in_doubt(broker, "new", 1), "and not after a kill"


def test_a_log_out_of_reach_stays_in_doubt(broker: Broker) -> None:
    broker.replicas.doubts = known = in_doubt(broker, "new", 1)
    broker.world.directories.offline["/elsewhere"] = "its disk is broken"
    assert isinstance(broker.become(2, 1).partition_errors[KEY], StorageError)
    assert KEY in known


def test_a_log_that_may_lie_in_a_directory_that_is_offline_is_not_made_anew(broker: Broker) -> None:
    """It would lead with nothing in it, and those who follow would cut all that they have."""
    broker.world.directories.offline["/elsewhere"] = "its disk is broken"
    assert isinstance(broker.become(1, 0).partition_errors[KEY], StorageError)
    assert broker.world.partitions.find(*KEY) is None
    assert not (Path(broker.data) / "t-0").exists(), "the next start would take it for the log"
    assert broker.become(1, 0, is_new=True) == PeerAnswer(), "a new topic has no other log"
    assert broker.partition.is_leader


def test_requests_wait_for_one_that_waits_for_the_disk(broker: Broker) -> None:
    order: list[str] = []
    broker.replicas.take(roles(state(1, 0)), lambda _answer: order.append("roles"))
    broker.replicas.take(news(state(1, 0)), lambda _answer: order.append("news"))
    assert order == [], "directories are made on a thread"
    broker.world.loop.turn()
    assert order == ["roles", "news"]


def test_a_full_request_sets_logs_aside_that_it_does_not_name_and_no_others(broker: Broker) -> None:
    broker.become(1, 0)
    directories = broker.world.directories
    for number in (1, 2, 3):
        broker.take(roles(state(2, 0, partition=number)))
        broker.take(stop_of(number))
    full = roles(state(1, 1), state(LEADER_DURING_DELETION, 0, partition=2))
    broker.take(full)
    assert {key.partition for key in directories.logs} == {0, 1, 2, 3}, "an incremental one says nothing of the others"
    broker.take(replace(full, type=RequestType.FULL))
    assert {key.partition for key in directories.logs} == {0, 2}, "what is going is not astray"
    assert broker.world.partitions.find("t", 2) is None
    names = [path.name for path in Path(directories.directories[0].path).iterdir()]
    assert sorted(name.partition(".")[0] for name in names if name.endswith("-stray")) == ["t-1", "t-3"]
    broker.take(replace(full, type=RequestType.FULL, partitions=()))
    assert broker.partition.is_leader, "one that has a role is known to somebody"


def test_the_answer_to_a_deletion_waits_for_the_disk_and_the_loop_does_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of many partitions would hold the loop for longer than its session."""
    for number in range(3):
        broker.take(roles(state(1, 0, partition=number)))
    (home,) = broker.world.directories.directories
    synced: list[str] = []
    sync = broker.world.files.sync_directory

    def noted(path: str) -> None:
        synced.append(path)
        sync(path)

    monkeypatch.setattr(type(broker.world.files), "sync_directory", lambda _files, path: noted(path))
    answers: list[PeerAnswer] = []
    partitions = tuple(
        StoppedPartition(topic="t", partition=number, leader_epoch=0, delete=True) for number in range(3)
    )
    request = StopReplica(controller_id=3, controller_epoch=1, broker_epoch=10, partitions=partitions)
    broker.replicas.take(request, lambda answer: answers.append(answer) or synced.append("answered"))  # type: ignore[func-returns-value]
    assert (answers, synced) == ([], [])
    broker.world.loop.turn()
    assert answers == [PeerAnswer()]
    assert home.path in synced[: synced.index("answered")]
    assert [path.name for path in Path(home.path).iterdir() if path.is_dir()] == []


def stop_of(partition: int) -> StopReplica:
    one = StoppedPartition(topic="t", partition=partition, leader_epoch=0, delete=False)
    return StopReplica(controller_id=3, controller_epoch=1, broker_epoch=10, partitions=(one,))


def test_after_min_isr_is_lowered_nothing_is_committed_until_the_controller_elects_nobody_else(broker: Broker) -> None:
    """The leader may hear of the lower value first: what it would acknowledge then, the one who left does not have."""
    broker.world.create_topic("t", min_insync_replicas="2")
    broker.become(1, 5, isr=(1,), has_eligible=True, topic_id=broker.world.image.topics["t"].topic_id)
    partition = broker.partition
    partition.min_isr = 1
    partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])), -1)
    assert partition.log.high_watermark == 0
    topic_id = broker.world.image.topics["t"].topic_id
    broker.take(news(state(1, 5, isr=(1,), partition_epoch=6, topic_id=topic_id)))
    assert partition.log.high_watermark == 1


def test_when_min_isr_is_lowered_what_enough_have_by_then_is_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the next write: whoever waits for it, a coordinator that loads for instance, may be what keeps that from coming."""
    broker.world.create_topic("t", min_insync_replicas="2")
    broker.become(1, 5, isr=(1,), topic_id=broker.world.image.topics["t"].topic_id)
    partition = broker.partition
    partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])), 1)
    assert partition.log.high_watermark == 0
    heard: list[TopicPartition] = []
    monkeypatch.setattr(broker.world.holdings, "changed", heard.append)
    broker.world.image.topic_configs["t"]["min.insync.replicas"] = "1"
    broker.replicas.configs_changed(["t"])
    assert partition.log.high_watermark == 1
    assert heard == [KEY], "whoever waits for it"


# ISR changes.
def test_a_change_whose_outcome_is_not_known_is_asked_for_again_until_it_is(broker: Broker) -> None:
    broker.become(1, 0)
    broker.isr.start()
    broker.world.loop.advance(2 * LAG_MS)
    ((changes, done),) = broker.controller.asked
    (change,) = changes
    assert [(one.broker_id, one.broker_epoch) for one in change.new_isr] == [(1, 10)]
    done(PeerUnreachableError("gone"))
    broker.world.loop.advance(RETRY_MS)
    (_, (again, done)) = broker.controller.asked
    assert again == changes
    done([_changed(isr=(1,), partition_epoch=1)])
    broker.world.loop.advance(10 * RETRY_MS)
    assert broker.partition.isr == (1,)
    assert len(broker.controller.asked) == 2
    followers = broker.partition.followers
    assert followers is not None
    assert followers.proposal is None, "the next change can be asked for"  # KAFKA-12751


def test_a_change_that_is_refused_for_certain_is_taken_back(broker: Broker) -> None:
    broker.become(1, 0, isr=(1,))
    fetched = broker.partition.fetched_by(2, 1, 0, 0, broker.world.clock.monotonic_ms())
    assert fetched is not None
    assert fetched.proposal is not None
    broker.isr.propose(broker.partition, fetched.proposal)
    broker.world.loop.turn()
    broker.partition.append(bytearray(build_batch([(broker.world.clock.wall_ms(), None, b"x", ())])), 1)
    assert broker.partition.log.high_watermark == 0, "the newcomer may be in the ISR by now"
    ((_, done),) = broker.controller.asked
    done([_changed(error=IneligibleReplicaError("another life"))])
    followers = broker.partition.followers
    assert followers is not None
    assert followers.maximal == (1,)
    assert followers.proposal is None, "and may be asked for again"
    assert broker.partition.log.high_watermark == 1, "nobody waits for the newcomer any more"
    assert broker.moved == [KEY]


def test_an_answer_that_was_lost_comes_with_the_news(broker: Broker) -> None:
    broker.become(1, 0)
    broker.isr.start()
    broker.world.loop.advance(2 * LAG_MS)
    broker.take(news(state(1, 0, isr=(1,), partition_epoch=1)))  # KAFKA-12686
    assert broker.partition.isr == (1,)
    ((_, done),) = broker.controller.asked
    done(PeerUnreachableError("gone"))
    broker.world.loop.advance(10 * RETRY_MS)
    assert len(broker.controller.asked) == 1


def _changed(**changed: Any) -> IsrChanged:
    values: dict[str, Any] = {"topic_id": TOPIC_ID, "partition": 0, "leader": 1, "leader_epoch": 0}
    return IsrChanged(**{**values, **changed})


def test_a_full_account_tells_of_topics_that_are_gone_by_leaving_them_out(broker: Broker) -> None:
    """Their deletion was told while nobody could tell this broker."""
    broker.take(news(state(2, 0), state(2, 0, topic="u", topic_id=uuid.UUID(int=8))))
    broker.take(news())
    assert broker.world.image.topics.keys() == {"t", "u"}, "news are no account"
    broker.roles.clear()
    broker.take(replace(news(state(2, 0)), type=RequestType.FULL))
    assert broker.world.image.topics.keys() == {"t"}
    assert broker.roles[0] == {"u"}
    assert not broker.world.image.names_by_id.keys() & {uuid.UUID(int=8).bytes}


@pytest.mark.parametrize("late", [news(), stop(EPOCH_DURING_DELETION, delete=True), roles(state(2, 7))])
def test_what_lay_in_a_connection_that_was_given_up_changes_nothing(broker: Broker, late: PeerRequest) -> None:
    """The controller asked again on another one, and went on: a topic of that name may be a new one by now."""
    broker.take(replace(roles(state(1, 0)), serial=5))
    broker.take(replace(news(state(1, 0)), serial=6))
    if isinstance(late, UpdateMetadata):
        late = replace(late, type=RequestType.FULL)
    assert isinstance(broker.take(replace(late, serial=4)).error, StaleControllerEpochError)
    assert broker.world.image.topics.keys() == {"t"}
    assert broker.partition.is_leader
    assert broker.take(replace(news(state(1, 0)), serial=6)).error is None, "the same one again, whose answer was lost"
    assert broker.take(replace(news(state(1, 0)), controller_epoch=2, serial=1)).error is None, "another controller"


def test_a_topic_that_was_made_again_is_another(broker: Broker) -> None:
    """Whoever keeps something for the old one, as groups keep offsets, hears that it is gone."""
    broker.take(news(state(2, 0), state(2, 0, partition=1)))
    seen: list[set[str]] = []
    broker.replicas._roles_changed = lambda _topics: seen.append(set(broker.world.image.topics))
    broker.take(news(state(2, 0, topic_id=uuid.UUID(int=8))))
    assert seen == [set(), {"t"}]
    assert list(broker.world.image.topics["t"].partitions) == [0]
