"""Creating, growing and deleting a topic, cut at each step of the disk: after a start it is whole, or it is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.test_every_step_can_be_cut import ENDINGS
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.unit.handlers.world import World

from penstock.base.ids import TopicPartition

DIRECTORIES = (Path("/a"), Path("/b"))
CHANGED = "t"
KEPT = "kept"


def start(files: ForgetfulFiles) -> World:
    return World(*DIRECTORIES, files=files, log_index_size_max_bytes="64")


def delete(world: World) -> None:
    world.services.topics.delete(world.image.topics[CHANGED], lambda error: None)
    world.loop.turn()


def create(world: World) -> None:
    world.create_topic(CHANGED, 3)


def grow(world: World) -> None:
    world.services.topics.submit(
        world.services.topics.decide_grow(world.image.topics[CHANGED], 5, None), lambda error: None
    )
    world.loop.turn()


def delete_and_create(world: World) -> None:
    delete(world)
    create(world)


Change = Callable[[World], None]
CHANGES: dict[Change, tuple[int, set[int]]] = {
    create: (0, {0, 3}),
    grow: (3, {3, 5}),
    delete: (3, {0, 3}),
    delete_and_create: (3, {0, 3}),
}
"""How many partitions there are before, and how many there may be after."""


def partitions_on_disk(files: ForgetfulFiles) -> set[str]:
    return {
        name
        for directory in DIRECTORIES
        for name in files.list(str(directory))
        if files.is_directory(f"{directory}/{name}") and not name.endswith("-delete")
    }


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_a_topic_cut_anywhere_happened_or_did_not(change: Change, ending: str) -> None:
    how, _ = ENDINGS[ending]
    before, after = CHANGES[change]
    step = 0
    confirmed_once = False
    while True:
        files = ForgetfulFiles()
        world = start(files)
        world.create_topic(KEPT, 2)
        if before:
            world.create_topic(CHANGED, before)
        old_id = world.image.topics[CHANGED].topic_id if before else None
        files.fail_at = files.steps + step
        try:
            change(world)
            finished = True
        except Cut:
            finished = False
        files.fail_at = None
        how(files)
        again = start(files)
        again.loop.turn()
        count = len(again.image.topics[CHANGED].partitions) if CHANGED in again.image.topics else 0
        assert count in after, f"step {step}"
        expected = {f"{KEPT}-0", f"{KEPT}-1"} | {f"{CHANGED}-{number}" for number in range(count)}
        assert partitions_on_disk(files) == expected, f"step {step}"
        assert set(again.directories.logs) == {
            TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in expected
        }
        assert again.image.deleting == set(), f"step {step}"
        if finished:
            if change is delete:
                assert count == 0
            elif change is delete_and_create:
                assert again.image.topics[CHANGED].topic_id != old_id
            else:
                assert count == max(after)
            confirmed_once = True
            break
        step += 1
    assert confirmed_once
    assert step > 5
