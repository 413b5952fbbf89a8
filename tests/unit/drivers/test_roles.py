"""What is slow about new partitions is done on a thread, before anybody hears of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.test_produce_and_fetch import batch, codes, produce
from tests.unit.handlers.world import World

from penstock.controller.topics import NewTopic


class CountingFiles(FailingFiles):
    """Counts the syncs of directories; `in_job` says whether a thread's job runs."""

    def __init__(self) -> None:
        super().__init__()
        self.in_job = False
        self.on_loop: list[str] = []
        self.in_jobs: list[str] = []

    def sync_directory(self, path: str) -> None:
        (self.in_jobs if self.in_job else self.on_loop).append(path)
        super().sync_directory(path)


def watched(world: World, files: CountingFiles) -> None:
    """Marks the jobs of the world's loop."""
    run_in_thread = world.loop.run_in_thread

    def run(job: Any, done: Any) -> None:
        def marked() -> Any:
            files.in_job = True
            try:
                return job()
            finally:
                files.in_job = False

        run_in_thread(marked, done)

    world.loop.run_in_thread = run  # type: ignore[method-assign]


def test_a_topics_directories_are_made_and_synced_off_the_loop(tmp_path: Path) -> None:
    files = CountingFiles()
    world = World(tmp_path, files=files)
    watched(world, files)
    files.on_loop.clear()
    world.create_topic("t", 20)
    assert files.on_loop == []
    assert files.in_jobs.count(str(tmp_path)) == 1
    assert codes(produce(world, {("t", 19): batch(b"a")})) == [ErrorCode.none]


def test_nobody_is_told_of_a_topic_before_it_can_be_written(tmp_path: Path) -> None:
    world = World(tmp_path)
    told: list[bool] = []
    world.services.topics.create(
        world.services.topics.decide(NewTopic(name="t", partitions=3)),
        lambda error: told.append(all(world.partitions.find("t", number) is not None for number in range(3))),
    )
    world.loop.turn()
    assert told == [True]


def test_new_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    world = World(tmp_path / "a", tmp_path / "b")
    world.create_topic("t", 6)
    assert [len(list((tmp_path / name).glob("t-*"))) for name in "ab"] == [3, 3]


def test_a_directory_that_cannot_be_made_goes_offline(tmp_path: Path) -> None:
    files = FailingFiles()
    world = World(tmp_path / "a", tmp_path / "b", files=files)
    files.broken.add(str(tmp_path / "b"))
    world.create_topic("t", 2)
    assert [world.partitions.find("t", number) is not None for number in (0, 1)].count(True) == 1
    failures = [state.health.failure is not None for state in world.directories.directories]
    assert failures == [False, True]


def test_a_topic_made_again_in_the_same_breath_is_the_new_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t")
    produce(world, {("t", 0): batch(b"a")})
    world.services.topics.delete(world.image.topics["t"], lambda error: None)
    world.loop.turn()
    world.create_topic("t")
    assert world.partitions.get("t", 0).log.end_offset == 0
    assert world.partitions.get("t", 0).log.topic_id == world.image.topics["t"].topic_id
