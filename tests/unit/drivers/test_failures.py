"""A log directory that fails goes offline with its partitions; the others go on; the last one ends the broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.drivers.test_housekeeping import start
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.test_produce_and_fetch import batch, codes, fetch, produce
from tests.unit.handlers.test_topics import metadata
from tests.unit.handlers.world import World

STORAGE_ERROR = ErrorCode.kafka_storage_error


class TwoDirectories:
    """Topic `t` with partition 0 in the first directory, which works, and partition 1 in the second."""

    def __init__(self, path: Path, **configs: str) -> None:
        self.first, self.second = path / "first", path / "second"
        self.files = FailingFiles()
        self.world = World(self.first, self.second, files=self.files)
        self.world.create_topic("t", 2, **configs)
        assert (self.first / "t-0").is_dir()
        assert (self.second / "t-1").is_dir()

    def break_second(self) -> None:
        self.files.broken.add(str(self.second))

    def partitions(self) -> dict[int, tuple[ErrorCode, int, tuple[int, ...]]]:
        (topic,) = metadata(self.world, ["t"]).read().topics
        return {
            partition.partition_index: (partition.error_code, partition.leader_id, partition.offline_replicas)
            for partition in topic.partitions
        }


@pytest.fixture
def two(tmp_path: Path) -> TwoDirectories:
    return TwoDirectories(tmp_path, flush_messages="1")


def test_a_failed_flush_answers_those_who_wait_for_it_and_takes_the_partition_offline(two: TwoDirectories) -> None:
    two.break_second()
    answer = produce(two.world, {("t", 1): batch(b"a")}, acks=1, timeout_ms=30_000)
    assert not answer.is_there
    two.world.loop.turn()
    assert codes(answer) == [STORAGE_ERROR]
    assert two.partitions() == {0: (ErrorCode.none, 1, ()), 1: (ErrorCode.leader_not_available, -1, (1,))}


def test_the_other_directory_goes_on(two: TwoDirectories) -> None:
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    answer = produce(two.world, {("t", 0): batch(b"a"), ("t", 1): batch(b"b")}, acks=-1)
    two.world.loop.turn()
    assert codes(answer) == [ErrorCode.none, STORAGE_ERROR]
    assert codes(fetch(two.world, {("t", 0): 0, ("t", 1): 0})) == [ErrorCode.none, STORAGE_ERROR]
    assert two.world.failed == []


def test_a_waiting_fetch_hears_of_the_failure(two: TwoDirectories) -> None:
    answer = fetch(two.world, {("t", 1): 0}, wait_ms=30_000)
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    assert codes(answer) == [STORAGE_ERROR]


def test_what_failed_is_not_flushed_again_when_the_disk_seems_to_work(two: TwoDirectories) -> None:
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    two.files.broken.clear()
    start(two.world)
    two.world.loop.advance(120_000)
    assert two.world.partitions.get("t", 1).log.recovery_point == 0
    assert codes(produce(two.world, {("t", 1): batch(b"b")})) == [STORAGE_ERROR]


def test_the_last_directory_ends_the_broker(two: TwoDirectories) -> None:
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    two.files.broken.add(str(two.first / "t-0"))
    answer = produce(two.world, {("t", 0): batch(b"a")}, timeout_ms=30_000)
    two.world.loop.turn()
    assert codes(answer) == [STORAGE_ERROR]
    (reason,) = two.world.failed
    assert "every log directory has failed" in reason


def test_a_failed_append_is_noticed_by_housekeeping(tmp_path: Path) -> None:
    two = TwoDirectories(tmp_path, segment_bytes="200")
    start(two.world)
    two.break_second()
    errors = [codes(produce(two.world, {("t", 1): batch(b"x" * 100)})) for _ in range(2)]
    assert errors[-1] == [STORAGE_ERROR]
    two.world.loop.advance(1_000)
    assert two.partitions()[1] == (ErrorCode.leader_not_available, -1, (1,))


def test_a_checkpoint_that_cannot_be_written_takes_its_directory_only(tmp_path: Path) -> None:
    two = TwoDirectories(tmp_path)
    start(two.world)
    two.break_second()
    two.world.loop.advance(5_000)
    assert two.partitions() == {0: (ErrorCode.none, 1, ()), 1: (ErrorCode.leader_not_available, -1, (1,))}
    assert (two.first / "replication-offset-checkpoint").exists()


def test_a_topic_deleted_during_its_flush_takes_nothing_offline(two: TwoDirectories) -> None:
    partition = two.world.partitions.get("t", 1)
    two.world.services.topics.delete(two.world.image.topics["t"], lambda error: None)
    two.world.loop.turn()
    two.world.failures.partition_failed(partition, OSError("gone"))
    assert all(state.health.failure is None for state in two.world.directories.directories)


def test_a_partition_that_was_made_before_is_not_made_anew_beside_an_offline_directory(two: TwoDirectories) -> None:
    """Its records lie in the directory that is offline: an empty log in another one would hide their loss."""
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    two.world.partitions.remove(two.world.partitions.get("t", 1).topic_partition)
    del two.world.directories.logs[next(key for key in two.world.directories.logs if key.partition == 1)]
    two.world.roles.follow({"t"})
    assert two.world.partitions.find("t", 1) is None
    assert not (two.first / "t-1").exists()
    assert codes(produce(two.world, {("t", 1): batch(b"b")})) == [STORAGE_ERROR]
    assert codes(fetch(two.world, {("t", 1): 0})) == [STORAGE_ERROR]
