"""A follower's fetch session: a request costs what changed, and misses nothing."""

import gc
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_cluster_apis import HEAD, TOPIC_ID, Broker, state
from tests.unit.handlers.world import World

from penstock.base.ids import TopicPartition
from penstock.controller.peer_requests import LeaderAndIsr
from penstock.handlers.api import Context, Pending
from penstock.handlers.fetch import handle_fetch
from penstock.handlers.produce import handle_produce
from penstock.peers import messages
from penstock.protocol.fetch import FetchAnswer, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from penstock.protocol.produce import ProduceAnswer, ProducePartition, ProduceRequest, ProduceTopic
from penstock.records.build import build_batch

WAIT_MS = 500
COUNT = 5


class Follower:
    """Broker 2, that follows every partition of a topic in one session."""

    def __init__(self, broker: Broker, replica_id: int = 2) -> None:
        self.broker = broker
        self.replica_id = replica_id
        self.session_id = self.epoch = 0
        self.ends = dict.fromkeys(range(COUNT), 0)
        self.answers: list[FetchAnswer] = []
        self.pending: Pending[FetchAnswer] | None = None

    def ask(self, *named: int, forgotten: tuple[int, ...] = (), bytes_max: int = 10_000, bytes_min: int = 1) -> bool:
        """Sends a fetch; whether it was answered at once."""
        entries = [FetchPartition(number, 0, self.ends[number], -1, 0, 1_000) for number in named]
        topics = [FetchTopic("", TOPIC_ID.bytes, entries)] if entries else []
        gone = [ForgottenTopic("", TOPIC_ID.bytes, forgotten)] if forgotten else []
        request = FetchRequest(
            self.replica_id, 5, WAIT_MS, bytes_min, bytes_max, 0, self.session_id, self.epoch, topics, gone, "", None
        )
        answer = handle_fetch(request, Context(self.broker.world.services, self.broker.world._peer, 1, 17, None))
        if isinstance(answer, Pending):
            self.pending = answer
            answer.listen(self._answered)
        else:
            self._answered(answer)
        return answer is not self.pending

    def _answered(self, answer: FetchAnswer) -> None:
        self.pending = None
        self.answers.append(answer)
        self.session_id, self.epoch = answer.session_id, self.epoch + 1

    def told(self) -> dict[int, Any]:
        """What the last answer said, by partition."""
        return {one.partition: one for topic in self.answers[-1].topics for one in topic.partitions}

    def begin(self) -> None:
        """With everything named, and nothing to read: it waits, and is told the watermarks when the time is over."""
        assert not self.ask(*range(COUNT))
        self.broker.world.loop.advance(WAIT_MS)
        assert sorted(self.told()) == list(range(COUNT))


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    broker = Broker(tmp_path)
    states = tuple(state(partition=number, isr=(1, 2, 3), partition_epoch=1) for number in range(COUNT))
    broker.call(messages.write_request(LeaderAndIsr(**HEAD, partitions=states, live_leaders=())))
    return Follower(broker)


def write(follower: Follower, partition: int, value: bytes = b"x") -> int:
    """Appends as a producer does; the end then."""
    world = follower.broker.world
    found = world.partitions.get("t", partition)
    found.append(bytearray(build_batch([(world.clock.wall_ms(), None, value, ())])), 1)
    world.services.fetch_waits.changed(TopicPartition("t", partition))
    return found.log.end_offset


def test_a_waiting_fetch_that_named_nothing_is_woken_by_any_partition_and_told_of_that_alone(
    follower: Follower,
) -> None:
    follower.begin()
    assert not follower.ask()
    write(follower, 3)
    follower.broker.world.loop.turn()
    told = follower.told()
    assert list(told) == [3]
    assert told[3].records
    follower.ends[3] = 1
    assert not follower.ask(3)
    assert follower.broker.world.partitions.get("t", 3).followers.get(2).end_offset == 1  # type: ignore[union-attr]


def test_what_changed_between_two_fetches_is_told_at_once(follower: Follower) -> None:
    follower.begin()
    write(follower, 1)
    write(follower, 4)
    follower.broker.world.loop.turn()
    assert follower.ask()
    assert sorted(follower.told()) == [1, 4]


def test_a_moved_watermark_is_told_with_the_next_answer_and_wakes_nobody(follower: Follower) -> None:
    follower.begin()
    write(follower, 2)
    follower.broker.world.loop.turn()
    assert follower.ask()
    follower.ends[2] = 1
    assert not follower.ask(2)
    other = Follower(follower.broker, 3)
    other.ends[2] = 1
    assert not other.ask(*range(COUNT))
    assert follower.broker.world.partitions.get("t", 2).log.high_watermark == 1
    follower.broker.world.loop.turn()
    assert follower.pending is not None
    follower.broker.world.loop.advance(WAIT_MS)
    told = follower.told()
    assert {number: one.high_watermark for number, one in told.items()} == {2: 1}


def test_what_does_not_fit_into_an_answer_comes_with_the_next_though_nobody_asks(follower: Follower) -> None:
    follower.begin()
    for number in (0, 1, 2):
        write(follower, number, b"x" * 100)
    follower.broker.world.loop.turn()
    seen: list[int] = []
    for _ in range(3):
        assert follower.ask(*seen[-1:], bytes_max=60)
        (number,) = [number for number, one in follower.told().items() if one.records]
        follower.ends[number] = 1
        seen.append(number)
    assert sorted(seen) == [0, 1, 2]


def test_a_change_that_nobody_told_of_is_found_within_a_waiting_time(follower: Follower) -> None:
    follower.begin()
    world = follower.broker.world
    assert not follower.ask()
    world.partitions.get("t", 4).append(bytearray(build_batch([(world.clock.wall_ms(), None, b"x", ())])), 1)
    world.loop.advance(WAIT_MS)
    assert follower.told() == {}
    assert follower.ask()
    assert list(follower.told()) == [4]


def test_an_idle_follower_stays_in_sync_and_one_that_is_behind_is_not_taken_for_idle(follower: Follower) -> None:
    follower.begin()
    world = follower.broker.world
    partition = world.partitions.get("t", 0)
    for _ in range(10):
        follower.ask()
        world.loop.advance(WAIT_MS)
    write(follower, 0)
    now_ms = world.clock.monotonic_ms()
    known = partition.followers.get(2)  # type: ignore[union-attr]
    assert known is not None
    assert now_ms - known.caught_up_ms <= 2 * WAIT_MS, "it asked all the while, and had everything"
    for _ in range(10):
        follower.ask()
        world.loop.advance(WAIT_MS)
    assert world.clock.monotonic_ms() - known.caught_up_ms > 5 * WAIT_MS


def test_a_lost_role_is_told_and_a_forgotten_partition_is_not_heard_of_any_more(follower: Follower) -> None:
    follower.begin()
    assert not follower.ask(forgotten=(1,))
    write(follower, 1)
    follower.broker.world.loop.turn()
    assert follower.pending is not None
    moved = state(partition=0, leader=-1, leader_epoch=1, partition_epoch=2)
    follower.broker.call(messages.write_request(LeaderAndIsr(**HEAD, partitions=(moved,), live_leaders=())))
    follower.broker.world.loop.turn()
    assert {number: one.error_code for number, one in follower.told().items()} == {0: ErrorCode.fenced_leader_epoch}
    assert follower.ask(), "and again, until it is forgotten"
    assert list(follower.told()) == [0]
    assert not follower.ask(forgotten=(0,))


def test_bytes_are_counted_where_a_follower_asks_for_more_than_one(follower: Follower) -> None:
    follower.begin()
    assert not follower.ask(bytes_min=100)
    for number in (0, 1):
        write(follower, number)
        follower.broker.world.loop.turn()
        assert (follower.pending is None) == (number == 1)
    assert sorted(follower.told()) == [0, 1]


def test_a_session_that_ends_leaves_nobody_listening(follower: Follower) -> None:
    world = follower.broker.world
    follower.begin()
    assert not follower.ask()
    assert follower.pending is not None
    follower.pending.abandon()
    assert world.services.fetch_waits.purgatory.waiting == 0
    again = Follower(follower.broker)
    again.begin()
    assert len(world.services.fetch_sessions) == 1
    again.epoch = -1
    again.ask(0)
    assert len(world.services.fetch_sessions) == 0
    assert not world.services.fetch_waits.purgatory.is_watched(TopicPartition("t", 3))


def wait_for_one_record(world: World, offset: int) -> tuple[Pending[FetchAnswer], Pending[ProduceAnswer]]:
    """A consumer that waits for the record at `offset`, and its producer, who waits for the followers."""
    entry = FetchPartition(0, -1, offset, -1, -1, 1_000)
    asked = FetchRequest(-1, -1, WAIT_MS, 1, 10_000, 0, 0, -1, [FetchTopic("t", TOPIC_ID.bytes, [entry])], [], "", None)
    reader = handle_fetch(asked, Context(world.services, world._peer, 1, 12, None))
    records = memoryview(bytearray(build_batch([(world.clock.wall_ms(), None, b"x", ())])))
    topic = ProduceTopic("t", TOPIC_ID.bytes, [ProducePartition(0, records)])
    context = Context(world.services, world._peer, 0, 9, None)
    writer = handle_produce(ProduceRequest(None, -1, 30_000, [topic]), context)
    assert isinstance(reader, Pending)
    assert isinstance(writer, Pending)
    world.loop.turn()
    return reader, writer


def replicate(followers: list[Follower], end_offset: int) -> None:
    """They have everything up to there, and ask for more."""
    for one in followers:
        one.ends[0] = end_offset
        one.ask(0)
    followers[0].broker.world.loop.turn()


def test_who_reads_is_answered_before_who_wrote(follower: Follower) -> None:
    followers = [follower, Follower(follower.broker, replica_id=3)]
    replicate(followers, 0)
    order: list[str] = []
    reader, writer = wait_for_one_record(follower.broker.world, 0)
    reader.listen(lambda _: order.append("reader"))
    writer.listen(lambda _: order.append("writer"))
    replicate(followers[:1], 1)
    assert order == []
    replicate(followers[1:], 1)
    assert order == ["reader", "writer"]


def test_a_wait_that_is_over_leaves_nothing_for_a_collection_to_find(follower: Follower) -> None:
    """Fails of compiled modules only: there all closures of a call share what they hold."""
    followers = [follower, Follower(follower.broker, replica_id=3)]
    replicate(followers, 0)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number in range(3):
            gc.collect()  # the first round leaves what a first use of anything does
            reader, writer = wait_for_one_record(follower.broker.world, number)
            replicate(followers, number + 1)
            assert reader.is_resolved
            assert writer.is_resolved
            del reader, writer
        assert gc.collect() == 0
    finally:
        if was_enabled:
            gc.enable()
