"""A broker that is killed before any write of a transaction's way: afterwards each transaction is wholly visible or wholly
not, what was answered holds, and its producer goes on."""

from __future__ import annotations

import contextlib

import pytest
from tests.support.forgetful_files import Cut
from tests.support.transaction_requests import Stamp
from tests.support.transaction_world import TransactionWorld

PLACES = (("t", 0), ("t", 1))
TRANSACTIONS = (True, False, True, True)


class Script:
    """Writes transactions to two partitions and a group, until the broker dies."""

    def __init__(self, world: TransactionWorld, *, bumps: bool) -> None:
        self.world = world
        self.bumps = bumps
        self.ended: list[bool] = []
        """How the transactions ended that were answered."""

    def run(self) -> None:
        requests = self.world.requests
        stamp = requests.init("x")
        assert stamp.error == "none"
        sequence = 0
        for number, commit in enumerate(TRANSACTIONS):
            if self.bumps:
                sequence = 0
            else:
                assert set(requests.add_partitions("x", stamp, PLACES).values()) == {"none"}
                assert requests.add_offsets("x", stamp, "g") == "none"
            for place in PLACES:
                version = 12 if self.bumps else 11
                said = requests.produce("x", stamp, *place, [b"%d" % number], sequence=sequence, version=version)
                assert said[0] == "none"
            version = 5 if self.bumps else 3
            assert requests.commit_offset("x", stamp, "g", ("t", 0), number + 1, version=version) == "none"
            ended = requests.end("x", stamp, commit=commit, version=5 if self.bumps else 4)
            assert ended.error == "none"
            self.ended.append(commit)
            if self.bumps:
                stamp = ended
            sequence += 1


def check(world: TransactionWorld, ended: list[bool]) -> None:
    first, second = (world.visible(*place) for place in PLACES)
    assert first == second, "a transaction is visible on one partition and not on the other"
    answered = [b"%d" % number for number, commit in enumerate(ended) if commit]
    possible = [answered]
    if len(ended) < len(TRANSACTIONS) and TRANSACTIONS[len(ended)]:
        possible.append([*answered, b"%d" % len(ended)])  # decided, and the answer was lost
    assert first in possible
    _, offset = world.requests.committed("g", ("t", 0), require_stable=False)
    assert offset == (int(first[-1]) + 1 if first else -1), "offsets and records tell different stories"


def go_on(world: TransactionWorld, *, bumps: bool) -> None:
    requests = world.requests
    stamp = requests.init("x")
    if stamp.error == "concurrent_transactions":  # the open transaction had to be aborted first
        stamp = requests.init("x")
    assert stamp.error == "none"
    before = world.visible("t", 0)
    if not bumps:
        requests.add_partitions("x", stamp, PLACES)
    for place in PLACES:
        version = 12 if bumps else 11
        assert requests.produce("x", stamp, *place, [b"last"], sequence=0, version=version)[0] == "none"
    assert requests.end("x", stamp, commit=True, version=5 if bumps else 4).error == "none"
    for place in PLACES:
        assert world.visible(*place) == [*before, b"last"]
        assert world.open_transactions(*place) == 0
    assert requests.states() == {"x": "CompleteCommit"}
    assert requests.committed("g", ("t", 0), require_stable=True)[0] == "none"


def steps(*, bumps: bool) -> int:
    world = TransactionWorld({"t": 2})
    before = world.files.steps
    Script(world, bumps=bumps).run()
    return world.files.steps - before


@pytest.mark.parametrize("bumps", [False, True])
def test_a_kill_before_any_write_leaves_every_transaction_whole(bumps: bool, full_counts: bool) -> None:
    count = steps(bumps=bumps)
    assert count > 30
    for step in range(count):
        world = TransactionWorld({"t": 2})
        script = Script(world, bumps=bumps)
        world.files.fail_at = world.files.steps + step
        with pytest.raises(Cut):
            script.run()
        world.kill()
        for second in range(0, 60, 2 if full_counts else 17):  # the next life may end while it loads and completes
            world.files.fail_at = world.files.steps + second
            with contextlib.suppress(Cut):
                world.start()
            world.kill()
        world.start()
        check(world, script.ended)
        go_on(world, bumps=bumps)


def test_a_prepared_commit_is_completed_by_the_next_life() -> None:
    world = TransactionWorld({"t": 1})
    requests = world.requests
    stamp = requests.init("x")
    requests.add_partitions("x", stamp, [("t", 0)])
    assert requests.produce("x", stamp, "t", 0, [b"v"], sequence=0, version=11)[0] == "none"
    world.files.fail_at = world.files.steps + 1  # the record is written, its marker is not
    with pytest.raises(Cut):
        requests.end("x", stamp, commit=True, version=4)
    assert "/t-0/" in world.files.last_step
    world.restart()
    assert world.visible("t", 0) == [b"v"]
    assert world.requests.states() == {"x": "CompleteCommit"}
    assert world.requests.end("x", stamp, commit=True, version=4) == Stamp("none")
