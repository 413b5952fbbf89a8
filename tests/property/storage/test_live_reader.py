"""A reader beside a broker gives every record of its range once, at whatever moment the broker changes which file.

The broker runs in a thread that makes one change of its disk at a time, when the reader lets it: before each look that the
reader takes at the disk it lets a few happen, by seed. So the two meet in the middle of rolls, swaps, renames and
deletions, the same way in every run.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import Row, rows_in
from tests.support.log_world import DIRECTORY, PARTITION, LogWorld

from penstock.base.errors import CorruptFileError
from penstock.base.files import File
from penstock.records.build import Record, build_batch
from penstock.storage.live.errors import LiveLossError
from penstock.storage.live.partitions import LivePartition, high_watermark, log_end_offset, stable_offset, start_offset
from penstock.storage.live.read import read_batches
from penstock.storage.live.transactions import read_aborted

PLACE = LivePartition(DIRECTORY, PARTITION)
T0 = 1_700_000_000_000


class _Broker(threading.Thread):
    """Does its work one change at a time."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._may_go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.error: BaseException | None = None

    def run(self) -> None:
        self._may_go.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._stands.release()

    def pause(self) -> None:
        self._stands.release()
        self._may_go.acquire()

    def advance(self, changes: int) -> None:
        for _ in range(changes):
            if self.is_done:
                return
            self._may_go.release()
            assert self._stands.acquire(timeout=60)


class _SharedDisk(ForgetfulFiles):
    """Each change by the broker waits for its turn; each look by the reader gives it some."""

    def __init__(self) -> None:
        super().__init__()
        self.broker: _Broker | None = None
        self.before_look: Callable[[], object] = lambda: None

    def step(self, what: str) -> None:
        super().step(what)
        if self.broker is not None and threading.current_thread() is self.broker:
            self.broker.pause()

    def _look(self) -> None:
        if threading.current_thread() is not self.broker:
            self.before_look()

    def list(self, path: str) -> list[str]:
        self._look()
        return super().list(path)

    def open_read(self, path: str) -> File:
        self._look()
        return super().open_read(path)

    def read(self, path: str) -> bytes:
        self._look()
        return super().read(path)


class _World(LogWorld):
    def __init__(self, disk: _SharedDisk, **config: object) -> None:
        self._disk = disk
        super().__init__(**config)

    def open(self) -> None:
        self.files = self._disk
        super().open()


def records(chance: random.Random, world: LogWorld) -> list[Record]:
    keys = [b"%d" % number for number in range(12)]
    value = chance.choice([b"v" * chance.randrange(80), b"v", None])
    return [(world.clock.wall_ms(), chance.choice(keys), value, ()) for _ in range(chance.randint(1, 4))]


def write_some(world: LogWorld, chance: random.Random, batches: int) -> None:
    for _ in range(batches):
        what = chance.random()
        if what < 0.5:
            world.append(records(chance, world))
        elif what < 0.8:
            world.append(records(chance, world), producer_id=chance.choice((7, 8)), transactional=True)
        elif world.in_transaction:
            world.end_transaction(chance.choice(sorted(world.in_transaction)), commit=chance.random() < 0.5)


def read_visible(disk: ForgetfulFiles, start: int, end: int) -> Iterator[Row]:
    aborted = read_aborted(disk, PLACE.directory, start, end)
    for stretch in read_batches(disk, PLACE.directory, start, end):
        for batch in stretch.batches:
            if not batch.is_control and batch not in aborted:
                yield from (row for row in rows_in(stretch.data, batch) if start <= row.offset < end)


@given(seed=st.integers(0, 2**32))
def test_every_record_of_a_range_is_read_once_while_the_broker_works(seed: int) -> None:
    chance = random.Random(seed)
    disk = _SharedDisk()
    deletes = chance.random() < 0.3
    policy = "compact,delete" if deletes else "compact"
    world = _World(
        disk,
        cleanup_policy=policy,
        retention_bytes=2000 if deletes else -1,
        min_cleanable_dirty_ratio=0,
        delete_retention_ms=0,
    )
    write_some(world, chance, chance.randint(5, 40))
    if chance.random() < 0.3:
        world.compact()
    world.flush()
    start, end = start_offset(disk, PLACE), stable_offset(disk, PLACE, high_watermark(disk, PLACE))
    assert end == world.log.last_stable_offset
    before = [row for row in world.rows if row.offset < end and not row.control and row.offset not in world.aborted]

    def work() -> None:
        for _ in range(chance.randint(1, 3)):
            write_some(world, chance, chance.randint(0, 12))
            if deletes and chance.random() < 0.5:
                world.retain()
            else:
                world.compact()

    broker = disk.broker = _Broker(work)
    broker.start()
    pace = random.Random(seed + 1)
    most, leap_at = pace.choice((0, 1, 3, 20)), pace.randint(1, 25)
    looks = itertools.count()
    disk.before_look = lambda: broker.advance(
        pace.randint(60, 600) if next(looks) == leap_at else pace.randint(0, most)
    )
    found: list[Row] = []
    try:
        found.extend(read_visible(disk, start, end))
        lost = None
    except LiveLossError as error:
        lost = error
    disk.before_look = lambda: None
    broker.advance(10**6)
    broker.join(60)
    if broker.error is not None:
        raise broker.error
    offsets = [row.offset for row in found]
    assert offsets == sorted(set(offsets))
    assert set(found) <= set(before)
    if lost is not None:
        assert deletes
        assert world.log.log_start_offset > start
    else:
        left = [row for row in world.rows if start <= row.offset < end and row in set(before)]
        assert set(left) <= set(found), "a record that is still there was passed over"


EVENTS: dict[str, Callable[[LogWorld], object]] = {
    "compact": lambda world: world.compact(),
    "roll": lambda world: [world.append([(T0, b"1", b"v" * 60, ())]) for _ in range(20)],
    "delete": lambda world: world.retain(),
}


def read_while(event: str, at: int) -> None:
    """Segments become small enough to be merged, and most of their records stay; the event comes before look `at`."""
    disk = _SharedDisk()
    world = _World(disk, cleanup_policy="compact,delete", retention_bytes=500, min_cleanable_dirty_ratio=0)
    for number in range(48):
        key = b"%d" % (number if number % 3 else 0)
        aborts = number % 5 == 0
        world.append([(T0, key, b"v" * 60, ())], producer_id=7 if aborts else -1, transactional=aborts)
        if aborts:
            world.end_transaction(7, commit=False)
    world.flush()
    end = world.log.end_offset
    before = [row for row in world.rows if not row.control and row.offset not in world.aborted]
    looks = itertools.count()
    disk.before_look = lambda: EVENTS[event](world) if next(looks) == at else None
    found: list[Row] = []
    lost: LiveLossError | None = None
    try:
        found.extend(read_visible(disk, 0, end))
    except LiveLossError as error:
        lost = error
    assert len(found) == len(set(found))
    if lost is not None:
        assert event == "delete"
        assert lost.offset < lost.log_start_offset == world.log.log.segments[0].base_offset
        assert found == [row for row in before if row.offset < lost.offset]
    elif event == "compact":
        assert {row for row in world.rows if row in before} <= set(found) <= set(before)
    else:
        assert found == before


@pytest.mark.parametrize("event", EVENTS)
def test_whatever_happens_at_once_before_any_look_is_met(event: str) -> None:
    for at in range(60):
        read_while(event, at)


def test_the_end_is_the_last_whole_batch() -> None:
    world = LogWorld(preallocate="true")
    for _ in range(30):
        world.append([(world.clock.wall_ms(), b"k", b"v" * 50, ())])
    assert log_end_offset(world.files, PLACE) == 30
    with pytest.raises(LiveLossError) as lost:
        list(read_batches(world.files, PLACE.directory, 0, 31))
    assert lost.value.offset == 30
    active = world.log.log.active
    broken = bytearray(build_batch([(0, b"k", b"v", ())], base_offset=30))
    broken[-1] ^= 1
    world.files.open(active.path(".log")).pwrite(broken, active.size_bytes)
    assert log_end_offset(world.files, PLACE) == 30
    with pytest.raises(CorruptFileError, match=f"at position {active.size_bytes}"):
        list(read_batches(world.files, PLACE.directory, 0, 31))
