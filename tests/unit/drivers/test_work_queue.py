"""Work in steps: one piece after the other, whatever each of them waits for."""

from __future__ import annotations

from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.drivers.steps import Reply, run_steps
from penstock.drivers.work_queue import WorkQueue


class World:
    def __init__(self) -> None:
        self.loop = ManualLoop(ManualClock())
        self.failures: list[tuple[str, str]] = []
        self.queue = WorkQueue(self.loop, lambda name, error: self.failures.append((name, str(error))))
        self.done: list[str] = []

    def put(self, name: str, reply: Reply[str]) -> None:
        async def work() -> None:
            self.done.append(f"{name} begins")
            self.done.append(f"{name} {await reply}")

        self.queue.put_once(name, work)


def given(value: str) -> Reply[str]:
    reply: Reply[str] = Reply()
    reply.give(value)
    return reply


def test_the_next_piece_waits_for_the_one_before() -> None:
    world = World()
    first: Reply[str] = Reply()
    world.put("first", first)
    world.put("second", given("ends"))
    world.loop.turn()
    assert world.done == ["first begins"]
    first.give("ends")
    world.loop.turn()
    assert world.done == ["first begins", "first ends", "second begins", "second ends"]


def test_what_is_due_once_is_done_once_and_again_when_it_comes_while_it_is_done() -> None:
    world = World()
    reply: Reply[str] = Reply()
    world.put("look", reply)
    world.put("look", given("twice"))
    world.loop.turn()
    world.put("look", given("again"))
    reply.give("once")
    world.loop.turn()
    assert world.done == ["look begins", "look once", "look begins", "look again"]


def test_a_failure_is_told_and_the_rest_goes_on() -> None:
    world = World()

    async def fails() -> None:
        raise ValueError("no")

    world.queue.put("fails", fails)
    world.put("after", given("ends"))
    world.loop.turn()
    assert world.failures == [("fails", "no")]
    assert world.done == ["after begins", "after ends"]


def test_nothing_begins_after_the_stop() -> None:
    world = World()
    world.put("late", given("ends"))
    world.queue.stop()
    world.loop.turn()
    assert world.done == []


def test_steps_go_on_where_the_reply_is_given() -> None:
    first: Reply[int] = Reply()
    second: Reply[int] = Reply()

    async def work() -> int:
        return await first + await second

    results: list[int] = []
    run_steps(work(), results.append)
    second.give(2)
    assert results == []
    first.give(1)
    assert results == [3]
