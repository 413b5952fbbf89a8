"""Records count as deleted when no replica that is alive has them any more; with what wakes whoever waits for that."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_cluster_apis import HEAD, Broker, roles, state
from tests.unit.handlers.world import shape

from penstock.controller.peer_requests import UpdateMetadata
from penstock.handlers.api import Context, Pending
from penstock.handlers.delete_records import handle_delete_records
from penstock.peers import messages

TIMEOUT_MS = 1_000


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Brokers 2 and 3 have its four records."""
    made = Broker(tmp_path)
    made.write(4)
    for follower in (2, 3):
        made.fetch(follower, 4)
    assert made.partition.log.high_watermark == 4
    return made


class Deletion:
    """A DeleteRecords request, and its answer when it came."""

    def __init__(self, broker: Broker, offset: int) -> None:
        make = shape(21, 2)
        entry = make.topics.partitions.make(partition_index=0, offset=offset)
        topics = (make.topics.make(name="t", partitions=(entry,)),)
        request = make.make(topics=topics, timeout=timedelta(milliseconds=TIMEOUT_MS))
        self.told: list[tuple[ErrorCode, int]] = []
        self.pending = handle_delete_records(request, Context(broker.world.services, broker.world._peer, 21, 2, None))
        self.pending.listen(self._answered)

    def _answered(self, answer: Any) -> None:
        found = answer.topics[0].partitions[0]
        self.told.append((found.error_code, found.low_watermark))


def test_it_is_answered_when_every_follower_has_raised_its_start(broker: Broker) -> None:
    deletion = Deletion(broker, 3)
    assert broker.partition.log.log_start_offset == 3
    broker.fetch(2, 4, log_start_offset=3)
    broker.fetch(3, 4, log_start_offset=2)
    broker.world.loop.turn()
    assert deletion.told == [], "one of them has a record that is to be gone"
    broker.fetch(3, 4, log_start_offset=3)
    broker.world.loop.turn()
    assert deletion.told == [(ErrorCode.none, 3)]


def test_a_waiting_followers_next_answer_tells_it_the_new_start(broker: Broker) -> None:
    """As the follower is told nothing by a session that knows of no change."""
    first = broker.fetch(2, 4, session=(0, 0))
    waiting = broker.ask(2, 4, session=(first.session_id, 1), wait_ms=500)
    assert isinstance(waiting, Pending)
    answers: list[Any] = []
    waiting.listen(answers.append)
    Deletion(broker, 3)
    broker.world.loop.advance(500)
    assert [one.log_start_offset for one in answers[0].topics[0].partitions] == [3]


def test_a_replica_of_a_dead_broker_is_not_waited_for(broker: Broker) -> None:
    brokers = tuple(one for one in broker.world.image.brokers.values() if one.broker_id != 3)
    broker.call(messages.write_request(UpdateMetadata(**HEAD, partitions=(state(),), brokers=brokers)))
    deletion = Deletion(broker, -1)
    assert deletion.told == []
    broker.fetch(2, 4, log_start_offset=4)
    broker.world.loop.turn()
    assert deletion.told == [(ErrorCode.none, 4)]


def test_a_broker_that_died_meanwhile_is_noticed_when_the_time_is_over(broker: Broker) -> None:
    deletion = Deletion(broker, 3)
    broker.fetch(2, 4, log_start_offset=3)
    broker.world.loop.turn()
    brokers = tuple(one for one in broker.world.image.brokers.values() if one.broker_id != 3)
    broker.call(messages.write_request(UpdateMetadata(**HEAD, partitions=(state(),), brokers=brokers)))
    assert deletion.told == []
    broker.world.loop.advance(TIMEOUT_MS)
    assert deletion.told == [(ErrorCode.none, 3)]


def test_a_follower_that_does_not_raise_its_start_lets_it_time_out(broker: Broker) -> None:
    deletion = Deletion(broker, 3)
    broker.fetch(2, 4, log_start_offset=3)
    broker.fetch(3, 4, log_start_offset=1)
    broker.world.loop.advance(TIMEOUT_MS - 1)
    assert deletion.told == []
    broker.world.loop.advance(1)
    assert deletion.told == [(ErrorCode.request_timed_out, 1)]
    assert broker.partition.log.log_start_offset == 3
    assert broker.world.services.produce_waits.purgatory.watched == 0


def test_a_new_leader_waits_for_followers_that_have_said_nothing_yet(broker: Broker) -> None:
    broker.call(messages.write_request(roles(leader_epoch=1, partition_epoch=1)))
    broker.fetch(2, 4, log_start_offset=0)
    deletion = Deletion(broker, 0)
    assert deletion.told == []
    broker.fetch(3, 4, log_start_offset=0)
    broker.world.loop.turn()
    assert deletion.told == [(ErrorCode.none, 0)]


def test_another_leader_ends_the_wait(broker: Broker) -> None:
    deletion = Deletion(broker, 3)
    broker.call(messages.write_request(roles(leader=2, leader_epoch=1, partition_epoch=1)))
    broker.world.loop.turn()
    assert deletion.told == [(ErrorCode.not_leader_or_follower, -1)]


def test_a_client_that_left_leaves_nothing_waiting(broker: Broker) -> None:
    deletion = Deletion(broker, 3)
    assert broker.world.services.produce_waits.purgatory.waiting == 1
    deletion.pending.abandon()
    assert broker.world.services.produce_waits.purgatory.waiting == 0
