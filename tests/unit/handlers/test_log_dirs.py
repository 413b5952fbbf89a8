"""Log directories told and replicas moved between them, while they are written and read; and cut at every step."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.crash.test_every_step_can_be_cut import ENDINGS
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.unit.handlers.failing_files import FailingFiles
from tests.unit.handlers.test_produce_and_fetch import batch, codes, fetch, produce
from tests.unit.handlers.world import World, shape

from penstock.base.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.storage import checkpoints
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog

KEY = TopicPartition("t", 0)
SECOND = datetime.timedelta(seconds=1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "a", tmp_path / "b", log_segment_bytes="3000")
    made.create_topic("t")
    return made


def told(world: World, *, version: int = 5, topics: Any = None) -> dict[str, Any]:
    answer = world.send(35, version, topics=topics).read()
    return {Path(one.log_dir).name: one for one in answer.results}


def replicas(one: Any) -> dict[tuple[str, int], tuple[bool, int]]:
    return {
        (topic.name, entry.partition_index): (entry.is_future_key, entry.offset_lag)
        for topic in one.topics
        for entry in topic.partitions
    }


def move(world: World, path: Path | str, *, topic: str = "t", number: int = 0, version: int = 2) -> ErrorCode:
    make = shape(34, version).dirs
    directory = make.make(path=str(path), topics=(make.topics.make(name=topic, partitions=(number,)),))
    code: ErrorCode = world.send(34, version, dirs=(directory,)).read().results[0].partitions[0].error_code
    return code


def home(world: World) -> str:
    return Path(world.directories.home(KEY).path).name


def sequences(log: PartitionLog) -> list[tuple[int, int]]:
    return [(producer.producer_id, producer.last_sequence) for producer in log.producers.values()]


def other(world: World, tmp_path: Path) -> Path:
    return tmp_path / ("b" if home(world) == "a" else "a")


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_are_told_with_what_lies_in_them(world: World, version: int) -> None:
    produce(world, {("t", 0): batch(b"v")})
    found = told(world, version=version)
    here, there = found[home(world)], found["b" if home(world) == "a" else "a"]
    assert (here.error_code, replicas(here)) == (ErrorCode.none, {("t", 0): (False, 0)})
    assert here.topics[0].partitions[0].partition_size == len(batch(b"v"))
    assert replicas(there) == {}
    if version >= 4:
        assert 0 < here.usable_bytes <= here.total_bytes
    make = shape(35, version).topics
    asked = (make.make(topic="t", partitions=(5,)),)
    assert replicas(told(world, version=version, topics=asked)[home(world)]) == {}


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_with_everything_it_has(world: World, tmp_path: Path, version: int) -> None:
    # KAFKA-8002, 16297: its segments begin elsewhere, and it is written while the copy takes its place
    for number in range(40):
        produce(
            world,
            {("t", 0): build_batch([(1_700_000_000_000, b"k", b"v" * 100, ())], producer_id=9, base_sequence=number)},
        )
    partition = world.partitions.get("t", 0)
    partition.log.delete_records(7)
    before = partition.log
    epochs, producers = before.leader_epochs.entries, sequences(before)
    target = other(world, tmp_path)
    assert move(world, target, version=version) == ErrorCode.none
    assert KEY in world.moves.running
    produce(world, {("t", 0): batch(b"while it moves")})
    world.loop.turn()
    assert home(world) == target.name
    log = partition.log
    assert log is world.directories.get(KEY) is not before
    assert (log.log_start_offset, log.end_offset, log.high_watermark) == (7, 41, 41)
    assert (log.leader_epochs.entries, sequences(log)) == (epochs, producers)
    assert Path(log.directory).parent == target
    assert [path.name for path in (tmp_path / "a").glob("t-0*")] + [
        path.name for path in (tmp_path / "b").glob("t-0*")
    ] == ["t-0"]
    assert codes(produce(world, {("t", 0): batch(b"after")})) == [ErrorCode.none]
    assert codes(fetch(world, {("t", 0): 40})) == [ErrorCode.none]
    duplicate = build_batch([(1_700_000_000_000, b"k", b"v" * 100, ())], producer_id=9, base_sequence=39)
    answer = produce(world, {("t", 0): duplicate}).read()
    assert answer.responses[0].partition_responses[0].base_offset == 39
    # As a start finds it.
    assert checkpoints.read_offsets(world.files, f"{target}/log-start-offset-checkpoint")[KEY] == 7


def after_jobs(world: World, count: int, happens: Callable[[], object]) -> None:
    """Something happens on the loop when this many jobs of threads are done, and the next is on its way."""
    run_in_thread, left = world.loop.run_in_thread, [count]

    def run(job: Any, done: Any) -> None:
        run_in_thread(job, done)
        left[0] -= 1
        if left[0] == 0:
            world.loop.call_soon(happens)

    world.loop.run_in_thread = run  # type: ignore[method-assign]


@pytest.mark.parametrize("written_anew", [0, 2, 60])
def test_a_follower_that_is_cut_while_it_moves_is_the_same_log_afterwards(
    world: World, tmp_path: Path, written_anew: int
) -> None:
    """Its leader's history parted from its own, after a part of it was copied already."""
    for number in range(40):
        produce(world, {("t", 0): batch(b"%d" % number * 50)})
    partition = world.partitions.get("t", 0)
    partition.take_role(leader=2, leader_epoch=1, isr=(1, 2), replicas=(1, 2))

    def part() -> None:
        assert KEY in world.moves.running, "it is under way"
        assert world.moves.running[KEY].future is not None
        world.directories.truncate(KEY, 3)
        for number in range(written_anew):
            records = bytearray(batch(b"anew %d" % number * 20))
            records[:8], records[12:16] = (3 + number).to_bytes(8, "big"), b"\0\0\0\1"
            partition.log.append_as_follower(records)

    after_jobs(world, 3, part)
    target = other(world, tmp_path)
    assert move(world, target) == ErrorCode.none
    before = partition.log
    world.loop.turn()
    assert home(world) == target.name
    assert partition.log is not before
    assert partition.log.end_offset == 3 + written_anew
    for offset in range(3 + written_anew):
        found = partition.log.read(offset, bytes_max=1, bound=Bound.LOG_END).slice
        assert found is not None
        assert (b"%d" % offset * 50 if offset < 3 else b"anew %d" % (offset - 3)) in found.read()


def test_a_new_leader_epoch_does_not_hold_a_move_up(world: World, tmp_path: Path) -> None:
    for number in range(40):
        produce(world, {("t", 0): batch(b"%d" % number * 50)})
    partition = world.partitions.get("t", 0)

    def lead_anew() -> None:
        assert KEY in world.moves.running
        partition.take_role(leader=1, leader_epoch=5, isr=(1,), replicas=(1,))

    after_jobs(world, 3, lead_anew)
    move(world, other(world, tmp_path))
    world.loop.turn()
    assert world.moves.running == {}  # KAFKA-9654
    assert home(world) == Path(partition.log.directory).parent.name
    epochs = partition.log.leader_epochs
    assert (partition.log.end_offset, epochs.latest, epochs.end_offset_for(4, 40)[1]) == (40, 5, 40)


def test_a_move_under_way_is_told_as_the_future(world: World, tmp_path: Path) -> None:
    produce(world, {("t", 0): batch(*[b"v" * 100] * 9)})
    target = other(world, tmp_path)
    move(world, target)
    running = world.moves.running[KEY]
    running.begin(uuid.UUID(int=77))
    assert replicas(told(world)[target.name]) == {("t", 0): (True, 9)}
    assert (target / "t-0.0000000000000000000000000000004d-future").is_dir()


def test_to_where_it_is_nothing_moves_and_elsewhere_begins_anew(world: World, tmp_path: Path) -> None:
    # KAFKA-9087
    assert move(world, tmp_path / home(world)) == ErrorCode.none
    assert world.moves.running == {}
    before = home(world)
    move(world, other(world, tmp_path))
    assert move(world, tmp_path / before) == ErrorCode.none
    world.loop.turn()
    assert home(world) == before
    assert [path.name for name in ("a", "b") for path in (tmp_path / name).glob("t-0*")] == ["t-0"]


def test_moves_that_cannot_be(world: World, tmp_path: Path) -> None:
    assert move(world, "/nowhere") == ErrorCode.log_dir_not_found
    assert move(world, "relative") == ErrorCode.log_dir_not_found
    assert move(world, tmp_path / "a", topic="u") == ErrorCode.replica_not_available
    assert move(world, tmp_path / "a", topic="x" * 230) == ErrorCode.invalid_topic_exception


def test_a_topic_deleted_on_its_way_leaves_nothing(world: World, tmp_path: Path) -> None:
    produce(world, {("t", 0): batch(b"v")})
    move(world, other(world, tmp_path))
    world.services.topics.delete(world.image.topics["t"], lambda error: None)
    world.loop.turn()
    assert world.moves.running == {}
    assert [path.name for name in ("a", "b") for path in (tmp_path / name).glob("t-0*")] == []


def test_a_target_that_fails_goes_offline_and_the_replica_stays(tmp_path: Path) -> None:
    files = FailingFiles()
    world = World(tmp_path / "a", tmp_path / "b", files=files)
    world.create_topic("t")
    produce(world, {("t", 0): batch(b"v")})
    before, target = home(world), other(world, tmp_path)
    files.broken.add(str(target))
    assert move(world, target) == ErrorCode.none
    world.loop.turn()
    assert home(world) == before
    assert codes(produce(world, {("t", 0): batch(b"v")})) == [ErrorCode.none]
    assert told(world)[target.name].error_code == ErrorCode.kafka_storage_error


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_move_cut_at_any_step_keeps_every_record(ending: str) -> None:
    how, _ = ENDINGS[ending]
    step = 0
    finished = False
    while not finished:
        files = ForgetfulFiles()
        world = World(Path("/a"), Path("/b"), files=files, log_index_size_max_bytes="64", log_segment_bytes="400")
        world.create_topic("t")
        for number in range(6):
            produce(world, {("t", 0): batch(b"%d" % number * 50)})
        world.partitions.get("t", 0).log.flush()
        world.directories.checkpoint()
        target = "/b" if world.directories.home(KEY).path == "/a" else "/a"
        files.fail_at = files.steps + step
        try:
            move(world, target)
            world.loop.turn()
            finished = True
        except Cut:
            pass
        files.fail_at = None
        how(files)
        again = World(Path("/a"), Path("/b"), files=files, log_index_size_max_bytes="64", log_segment_bytes="400")
        again.loop.turn()
        log = again.partitions.get("t", 0).log
        assert (log.log_start_offset, log.end_offset) == (0, 6), f"step {step}"
        names = [name for path in ("/a", "/b") for name in files.list(path) if name.startswith("t-0")]
        assert names == ["t-0"], f"step {step}"
        if finished:
            assert again.directories.home(KEY).path == target
        step += 1
    assert step > 10
