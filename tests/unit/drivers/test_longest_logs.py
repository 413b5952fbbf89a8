"""How long a partition that nobody can be trusted with waits, and who is asked then."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.controller.world import KEY, broker, make_cluster, state
from tests.unit.handlers.world import ManualLoop

from penstock.base.clock import ManualClock
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.cluster import Cluster
from penstock.controller.recovery import LogEnd
from penstock.drivers.log_ends import Ends
from penstock.drivers.longest_logs import LOOK_AGAIN_MS, LongestLogs

TIMEOUT_MS = 60 * LOOK_AGAIN_MS


class Brokers:
    """Each says that its log is as long as its number."""

    def log_ends(
        self,
        broker_id: int,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, LogEnd] | PenstockError], object],
    ) -> None:
        done(dict.fromkeys(partitions, LogEnd(5, broker_id)))


class World:
    def __init__(self, *alive: int) -> None:
        clock = ManualClock()
        self.loop = ManualLoop(clock)
        members = [broker(one, generation="new") for one in alive]
        self.cluster: Cluster | None = make_cluster(*members, partitions={0: state(leader=-1, isr=(1, 2))})
        self.told: list[Ends] = []
        self.longest = LongestLogs(
            loop=self.loop,
            clock=clock,
            channel=Brokers(),
            cluster=lambda: self.cluster,
            told=self.told.append,
            timeout_ms=TIMEOUT_MS,
        )
        self.longest.look()
        self.loop.turn()


def test_members_that_are_all_back_are_asked_at_once_and_again_until_somebody_leads() -> None:
    world = World(1, 2)
    assert world.told == [{KEY: {1: LogEnd(5, 1), 2: LogEnd(5, 2)}}]
    world.loop.advance(LOOK_AGAIN_MS)
    assert len(world.told) == 2
    assert world.cluster is not None
    world.cluster = make_cluster(1, 2)
    world.loop.advance(10 * LOOK_AGAIN_MS)
    assert len(world.told) == 2


def test_a_member_that_is_away_is_waited_for_and_not_for_ever() -> None:
    world = World(2)
    world.loop.advance(TIMEOUT_MS - LOOK_AGAIN_MS)
    assert world.told == []
    assert world.longest.overdue == set()
    world.loop.advance(LOOK_AGAIN_MS)
    assert world.told == [{KEY: {2: LogEnd(5, 2)}}]
    assert world.longest.overdue == {KEY}


def test_a_new_controller_begins_to_wait_anew() -> None:
    world = World(2)
    world.loop.advance(TIMEOUT_MS - LOOK_AGAIN_MS)
    there, world.cluster = world.cluster, None
    world.loop.advance(LOOK_AGAIN_MS)
    world.cluster = there
    world.longest.look()
    world.loop.advance(TIMEOUT_MS - LOOK_AGAIN_MS)
    assert world.told == []
