"""A transaction's writes while the coordinator's word is on its way: it stands on another broker, and its answers come late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.support.transaction_requests import Stamp, TransactionRequests
from tests.unit.drivers.replicated import GROUPS, Replicated
from tests.unit.handlers.test_groups import send_fetch
from tests.unit.handlers.test_transaction_apis import T0, T1, Served, opened, produce
from tests.unit.handlers.world import shape
from tests.unit.server.test_connection import FakeTransport, connected, frame, receive

from penstock.base.ids import TopicPartition
from penstock.coordinator.groups.messages import Asker, Commit
from penstock.handlers import verification
from penstock.handlers.services import Services
from penstock.peers.errors import error_of
from penstock.records.batch import assigned, scan
from penstock.records.build import build_batch, build_end_marker
from penstock.replication.errors import NotEnoughReplicasError


class Coordinator:
    """Decides when it is asked; `arrive` lets its answers through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._answers: list[Callable[[], object]] = []
        ask = verification.ask

        def ask_far_away(
            services: Services,
            transactional_id: str,
            producer: Any,
            partitions: Iterable[TopicPartition],
            then: Callable[[Any], object],
            *,
            add: bool,
        ) -> None:
            def later(outcomes: Any) -> None:
                self._answers.append(lambda: then(outcomes))

            ask(services, transactional_id, producer, tuple(partitions), later, add=add)

        monkeypatch.setattr(verification, "ask", ask_far_away)

    def arrive(self) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()


class _Sent(Exception):
    pass


def send(world: Served, request: Callable[[TransactionRequests], object]) -> Any:
    """What comes of a request, not waited for."""
    waiting: list[Any] = []

    def call(key: int, version: int, entity: Any) -> Any:
        waiting.append(world.send_entity(key, version, entity))
        world.loop.turn()
        raise _Sent

    with pytest.raises(_Sent):
        request(TransactionRequests(call))
    return waiting[0]


def send_write(world: Served, stamp: Stamp, sequence: int, version: int) -> Any:
    return send(world, lambda asked: asked.produce("x", stamp, *T0, [b"v"], sequence=sequence, version=version))


def send_offset(world: Served, stamp: Stamp) -> Any:
    return send(world, lambda asked: asked.commit_offset("x", stamp, "g", T0, 5, version=3))


def produced(*answers: Any) -> list[str]:
    return [one.read().responses[0].partition_responses[0].error_code.name for one in answers]


@pytest.mark.parametrize("version", [9, 11])
@pytest.mark.parametrize("sequence", [0, 1], ids=["sent again", "the next one"])
def test_writes_that_were_asked_about_together_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, sequence: int
) -> None:
    """The first one opens the transaction, and with that its question is over: the other needs no word any more."""
    world = Served(tmp_path)
    stamp = opened(world, T0)
    coordinator = Coordinator(monkeypatch)
    first, second = (send_write(world, stamp, number, version) for number in (0, sequence))
    coordinator.arrive()
    assert produced(first, second) == ["none", "none"]
    assert world.log(T0).end_offset == 1 + sequence


def test_a_write_that_is_asked_about_lets_nothing_of_its_connection_overtake_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another partition of it has its transaction open: that one would take the next batch first, and be out of order."""
    world = Served(tmp_path)
    stamp = opened(world, T0, T1)
    assert produce(world, stamp, T0) == "none"
    coordinator = Coordinator(monkeypatch)
    transport = FakeTransport()
    client = connected(lambda payload, _peer: world.send_frame(payload), transport)
    receive(client, b"".join(frame(several(world, stamp, entries)) for entries in ([(1, 0), (0, 1)], [(0, 2)])))
    assert (world.log(T1).end_offset, world.log(T0).end_offset) == (0, 1)
    coordinator.arrive()
    world.loop.turn()
    assert (world.log(T1).end_offset, world.log(T0).end_offset) == (1, 3)
    assert not client.is_busy
    assert transport.sent


def several(world: Served, stamp: Stamp, entries: list[tuple[int, int]]) -> bytes:
    """A request with one record for each (partition, sequence)."""
    asked = shape(0, 9)
    made = []
    for partition, sequence in entries:
        records = build_batch(
            [(1, None, b"v", ())],
            producer_id=stamp.producer_id,
            producer_epoch=stamp.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        made.append(asked.topic_data.partition_data.make(index=partition, records=bytes(records)))
    topics = (asked.topic_data.make(name="t", partition_data=tuple(made)),)
    request = asked.make(transactional_id="x", acks=-1, timeout=timedelta(seconds=5), topic_data=topics)
    return world.frame(0, 9, request)


@pytest.mark.parametrize("version", [9, 11, 12])
def test_a_write_whose_partition_moves_while_it_is_asked_about_is_sent_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A word of the transaction's state would end it for the client."""
    world = Replicated(tmp_path)
    stamp = opened(world, T0)
    world.lead(T0)
    coordinator = Coordinator(monkeypatch)
    late = send_write(world, stamp, 0, version)
    world.lead(T0, leader=2)
    coordinator.arrive()
    assert produced(late) == ["not_leader_or_follower"]


def test_offsets_whose_group_moves_while_they_are_asked_about_are_sent_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Replicated(tmp_path)
    stamp = opened(world, T0)
    assert world.requests.add_offsets("x", stamp, "g") == "none"
    world.lead(GROUPS)
    world.fetch_all(GROUPS)
    coordinator = Coordinator(monkeypatch)
    late = send_offset(world, stamp)
    world.lead(GROUPS, leader=2)
    coordinator.arrive()
    assert [one.error_code.name for one in late.read().topics[0].partitions] == ["not_coordinator"]


def test_a_write_that_adds_its_partition_need_not_wait_for_what_the_one_before_it_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Served(tmp_path, flush_after=1)  # the coordinator's record takes its time
    stamp = world.requests.init("x")
    coordinator = Coordinator(monkeypatch)
    first, second = (send_write(world, stamp, number, 12) for number in (0, 1))
    world.loop.turn()
    coordinator.arrive()
    world.loop.turn()
    assert produced(first, second) == ["none", "none"]


def test_offsets_that_are_committed_again_while_they_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Served(tmp_path)
    stamp = opened(world, T0)
    assert world.requests.add_offsets("x", stamp, "g") == "none"
    coordinator = Coordinator(monkeypatch)
    answers = [send_offset(world, stamp) for _ in range(2)]
    coordinator.arrive()
    assert [one.read().topics[0].partitions[0].error_code.name for one in answers] == ["none", "none"]


def test_a_question_ends_where_another_broker_leads_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one may have ended the transaction: a late yes would open it again, and nobody would end it."""
    # KAFKA-14561
    world = Replicated(tmp_path)
    stamp = opened(world, T0)
    world.lead(T0)
    coordinator = Coordinator(monkeypatch)
    late = send_write(world, stamp, 0, 9)
    world.lead(T0, leader=2)
    marker = bytearray(build_end_marker(False, stamp.producer_id, stamp.epoch, 0, 1))
    (batch,) = scan(marker).batches
    assigned(marker, 0, 0, world.at(T0).leader_epoch, False, batch.max_timestamp)
    world.at(T0).log.append_as_follower(marker)
    world.lead(T0)
    again = send_write(world, stamp, 0, 9)
    coordinator.arrive()
    assert produced(late) == ["invalid_txn_state"], "nor does the yes count for the question that stands now"
    assert not again.is_there
    assert world.at(T0).log.producers.first_unstable_offset is not None


def test_a_write_that_the_coordinator_refused_for_anothers_sake_is_sent_again() -> None:
    """It had not heard of a new topic that the same request names."""
    refused = error_of(ErrorCode.operation_not_attempted, "the question")
    assert refused is not None
    assert isinstance(verification._for_producers(refused, 12), NotEnoughReplicasError)


def test_a_write_that_was_refused_by_a_follower_is_not_expected_when_it_leads(tmp_path: Path) -> None:
    """It was written elsewhere; the next one would be out of order."""
    world = Replicated(tmp_path)
    stamp = opened(world, T0)
    world.lead(T0, leader=2)
    assert produce(world, stamp, T0, sequence=0, version=9) == "not_leader_or_follower"
    assert len(world.at(T0).verifications) == 0
    world.lead(T0)
    world.fetch_all(T0)
    waiting = send_write(world, stamp, 1, 9)
    world.fetch_all(T0)
    assert produced(waiting) == ["none"]


def test_who_asks_for_offsets_while_a_follower_dies_is_told_to_ask_again(tmp_path: Path) -> None:
    """Until the ISR shrinks nothing is committed; consumers of Kafka before 3.9 give up where there is no coordinator."""
    world = Replicated(tmp_path)
    world.lead(GROUPS)
    world.fetch_all(GROUPS)
    led = world.groups.find("g")
    decision, _ = led.shard.commit("g", Asker("", None, -1), [Commit("t", 0, 5, -1, "")])
    world.groups.run(led, decision)
    waiting = send_fetch(world, 7)
    world.loop.advance(6_000)
    assert waiting.read().error_code.name == "coordinator_load_in_progress"
