"""No producer id is given twice, whoever crashes, and whoever wrote the directory before."""

from __future__ import annotations

from pathlib import Path

from tests.unit.handlers.world import World

from penstock.drivers.producer_ids import BELIEVED_MAX, BLOCK, ProducerIds


def taken(world: World, count: int) -> list[int]:
    given: list[object] = []
    for _ in range(count):
        world.services.producer_ids.take(given.append)
    world.loop.turn()
    assert all(isinstance(one, int) for one in given)
    return [one for one in given if isinstance(one, int)]


def test_ids_rise_over_the_ends_of_blocks(tmp_path: Path) -> None:
    assert taken(World(tmp_path), 2 * BLOCK + 5) == list(range(2 * BLOCK + 5))


def test_an_id_in_use_and_those_below_are_never_given(tmp_path: Path) -> None:
    world = World(tmp_path)
    ids: ProducerIds = world.services.producer_ids
    ids.pass_over(4_321)
    assert taken(world, 2) == [4_322, 4_323]
    ids.pass_over(4_000)
    assert taken(world, 1) == [4_324], "an older one changes nothing"
    ids.pass_over(9_999)
    assert taken(world, 1) == [10_000]


def test_an_id_that_a_client_made_up_leaves_some_for_others(tmp_path: Path) -> None:
    # A14
    world = World(tmp_path)
    world.services.producer_ids.pass_over(2**63 - 1)
    assert taken(world, 1) == [0]
    world.services.producer_ids.pass_over(BELIEVED_MAX)
    assert taken(world, 1) == [BELIEVED_MAX + 1]


def test_an_id_that_turns_up_while_a_block_is_on_its_way_is_passed_over_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    given: list[object] = []
    world.services.producer_ids.take(given.append)
    world.services.producer_ids.pass_over(5_000)
    world.loop.turn()
    assert given == [5_001]
