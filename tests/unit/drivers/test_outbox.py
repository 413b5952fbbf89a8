"""What the controller tells brokers: in order, again until it is heard, and not when it does not matter any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.base.errors import PenstockError
from penstock.controller.errors import StaleControllerEpochError
from penstock.controller.peer_requests import (
    LeaderAndIsr,
    PeerAnswer,
    PeerRequest,
    PeerRequests,
    RequestType,
    StopReplica,
    UpdateMetadata,
)
from penstock.drivers.outbox import RETRY_MS, Outbox


def news(epoch: int) -> UpdateMetadata:
    return UpdateMetadata(controller_id=1, controller_epoch=1, broker_epoch=epoch, partitions=(), brokers=())


def everything(epoch: int) -> LeaderAndIsr:
    kind = RequestType.FULL
    return LeaderAndIsr(
        controller_id=1, controller_epoch=1, broker_epoch=epoch, type=kind, partitions=(), live_leaders=()
    )


def stop(epoch: int) -> StopReplica:
    return StopReplica(controller_id=1, controller_epoch=1, broker_epoch=epoch, partitions=())


class Channel:
    """Remembers what was sent; the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, PeerRequest, Callable[[PeerAnswer], object]]] = []
        self.serials: list[int] = []
        self.forgotten: list[int] = []

    def send(self, broker_id: int, request: PeerRequest, done: Callable[[PeerAnswer], object]) -> None:
        self.serials.append(request.serial)
        self.sent.append((broker_id, replace(request, serial=0), done))

    def forget(self, broker_id: int) -> None:
        self.forgotten.append(broker_id)

    def answer(self, error: PenstockError | None = None) -> PeerRequest:
        _, request, done = self.sent.pop(0)
        done(PeerAnswer(error=error))
        return request


class World:
    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.channel = Channel()
        self.unwanted: set[int] = set()
        self.heard: list[PeerRequest] = []
        self.outbox = Outbox(
            self.loop,
            self.channel,
            lambda _broker, request: request.broker_epoch not in self.unwanted,
            lambda _broker, request, _answer: self.heard.append(replace(request, serial=0)),
        )
        self.outbox.put(PeerRequests(leader_and_isr={broker_id: everything(0) for broker_id in (1, 2, 3)}))
        for _ in range(3):
            self.channel.answer()
        self.heard.clear()


def test_a_broker_hears_one_thing_after_the_other_and_brokers_do_not_wait_for_each_other() -> None:
    world = World()
    world.outbox.put(PeerRequests(stop_replica={1: stop(1)}, update_metadata={1: news(1), 2: news(2)}))
    assert [(broker, type(request)) for broker, request, _ in world.channel.sent] == [
        (1, UpdateMetadata),
        (2, UpdateMetadata),
    ]
    assert world.channel.answer() == news(1)
    assert [broker for broker, _, _ in world.channel.sent] == [2, 1]
    assert world.heard == [news(1)]


def test_what_was_not_heard_is_said_again_first() -> None:
    world = World()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.outbox.put(PeerRequests(update_metadata={1: news(2)}))
    world.channel.answer(PenstockError("nobody there"))
    assert world.channel.sent == []
    world.loop.advance(RETRY_MS)
    assert [request for _, request, _ in world.channel.sent] == [news(1)]
    world.channel.answer()
    assert world.channel.answer() == news(2)


def test_a_refusal_for_good_is_not_repeated() -> None:
    world = World()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.channel.answer(StaleControllerEpochError("another one speaks"))
    world.loop.advance(RETRY_MS)
    assert world.channel.sent == []


def test_what_matters_no_more_is_not_said() -> None:
    world = World()
    for epoch in (1, 2, 3):
        world.outbox.put(PeerRequests(update_metadata={1: news(epoch)}))
    world.unwanted = {2}
    world.channel.answer()
    assert [request for _, request, _ in world.channel.sent] == [news(3)]


def test_a_broker_that_was_forgotten_and_came_back_is_told_anew() -> None:
    world = World()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    late = world.channel.sent.pop()[2]
    world.outbox.forget(1)
    assert world.channel.forgotten == [1]
    world.outbox.put(PeerRequests(leader_and_isr={1: everything(2)}, update_metadata={1: news(2)}))
    late(PeerAnswer())
    assert [request for _, request, _ in world.channel.sent] == [everything(2)]
    assert world.channel.answer() == everything(2)
    assert world.channel.answer() == news(2)
    assert world.heard == [everything(2), news(2)]


@pytest.mark.parametrize("end", [lambda outbox: outbox.forget(1), Outbox.clear])
def test_who_was_not_told_everything_is_told_nothing_else(end: Callable[[Outbox], object]) -> None:
    world = World()
    end(world.outbox)
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}, stop_replica={1: stop(1)}))
    assert world.channel.sent == []
    world.outbox.put(PeerRequests(leader_and_isr={1: everything(1)}))
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    assert [world.channel.answer() for _ in range(2)] == [everything(1), news(1)]


def test_a_controller_that_resigned_says_nothing_more() -> None:
    # KAFKA-4447
    world = World()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.outbox.clear()
    world.channel.answer(PenstockError("nobody there"))
    world.loop.advance(RETRY_MS)
    assert world.channel.sent == []
    assert world.heard == []


def test_who_waits_goes_on_when_everybody_has_heard_what_was_put_before() -> None:
    world, gone_on = World(), list[str]()
    world.outbox.when_heard(lambda: gone_on.append("nothing to wait for"), 1_000)
    world.outbox.put(PeerRequests(stop_replica={1: stop(1)}, update_metadata={1: news(1), 2: news(2), 3: news(3)}))
    world.outbox.when_heard(lambda: gone_on.append("heard"), 1_000)
    world.outbox.put(PeerRequests(update_metadata={2: news(2)}))
    for _ in range(3):
        world.channel.answer()
    assert gone_on == ["nothing to wait for"], "broker 1 has one more to hear"
    assert world.channel.answer() == stop(1)
    assert gone_on == ["nothing to wait for", "heard"]
    world.loop.advance(1_000)
    assert len(gone_on) == 2


def test_nobody_waits_for_brokers_that_are_gone_or_silent_for_too_long() -> None:
    world, gone_on = World(), list[str]()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.outbox.when_heard(lambda: gone_on.append("gone"), 1_000)
    world.outbox.forget(1)
    assert gone_on == ["gone"]
    world.outbox.put(PeerRequests(update_metadata={2: news(2)}))
    world.outbox.when_heard(lambda: gone_on.append("late"), 1_000)
    world.loop.advance(1_000)
    assert gone_on == ["gone", "late"]


def test_what_is_said_is_numbered_and_said_again_under_its_number() -> None:
    world = World()
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.outbox.put(PeerRequests(update_metadata={1: news(1)}))
    world.channel.answer(PenstockError("not heard"))
    world.loop.advance(RETRY_MS)
    world.channel.answer()
    first, again, second = world.channel.serials[-3:]
    assert 0 < first == again < second
