"""Each multi-step change is cut at each of its steps, reopened, and checked: flushed data is there, nothing is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.support.forgetful_files import Cut
from tests.support.log_checks import Row, check_log, rows_of
from tests.support.log_world import PARTITION, LogWorld, kill, power_cut, strict_power_cut

from penstock.records.batch import Codec

Change = Callable[[LogWorld], None]


def fill(world: LogWorld, count: int = 30) -> None:
    for number in range(count):
        world.clock.advance(10)
        stamp = world.clock.wall_ms()
        records = [(stamp + slot, b"k%d" % (number % 5), b"v" * 20 + b"%d" % number, ()) for slot in range(2)]
        codec = Codec.LZ4 if number % 3 == 0 else Codec.NONE
        world.append(records, codec=codec, producer_id=7 if number % 2 else -1, epoch=number // 10)


def with_transactions(world: LogWorld) -> None:
    for number in range(6):
        world.clock.advance(10)
        stamp = world.clock.wall_ms()
        world.append([(stamp, b"t%d" % number, b"x", ())], producer_id=11, transactional=True)
        world.append([(stamp, b"u%d" % number, b"y", ())], producer_id=12, transactional=True)
        world.end_transaction(11, commit=number % 2 == 0)
        if number % 3 == 2:
            world.end_transaction(12, commit=False)


def roll(world: LogWorld) -> None:
    world.log.roll()
    fill(world, 3)
    world.log.roll()


def truncate(world: LogWorld) -> None:
    world.truncate(world.log.end_offset // 2)
    fill(world, 4)
    world.flush()


def truncate_to_the_start(world: LogWorld) -> None:
    world.truncate(0)
    fill(world, 4)


def truncate_fully(world: LogWorld) -> None:
    world.directories.truncate_fully(PARTITION, world.log.end_offset + 100)
    world.rows = []
    world.flush()
    world.reread()
    fill(world, 4)


def delete(world: LogWorld) -> None:
    world.delete_records(world.log.end_offset // 2)
    world.retain()


def compaction(world: LogWorld) -> None:
    world.log.roll()
    world.compact()


def checkpoint(world: LogWorld) -> None:
    fill(world, 2)
    world.flush()
    world.flush()


def clean_stop(world: LogWorld) -> None:
    world.close()
    world.open()


def transactions(world: LogWorld) -> None:
    with_transactions(world)
    world.log.roll()
    with_transactions(world)


CHANGES: list[Change] = [
    roll,
    truncate,
    truncate_to_the_start,
    truncate_fully,
    delete,
    compaction,
    checkpoint,
    clean_stop,
    transactions,
]
ENDINGS = {
    "kill": (kill, True),
    "strict power cut": (strict_power_cut, False),
    "power cut 1": (power_cut(1), False),
    "power cut 2": (power_cut(2), False),
    "power cut 3": (power_cut(3), False),
}


def prepared(change: Change) -> LogWorld:
    policy = {"cleanup_policy": "compact"} if change is compaction else {}
    world = LogWorld(**policy)
    fill(world)
    world.flush()
    fill(world, 6)
    return world


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_cut_at_any_step_leaves_a_good_log(change: Change, ending: str) -> None:
    how, keeps_cache = ENDINGS[ending]
    step = 0
    while True:
        world = prepared(change)
        rows = list(world.rows)
        if not is_cut(world, step, partial(change, world)):
            break
        how(world.files)
        # A crash while loading, or just after it, is one more crash: here at another step each time, below at each.
        is_cut(world, step % 23, world.open)
        how(world.files)
        reopen(world, change, rows, keeps_cache)
        world.append([(world.clock.wall_ms(), b"after", b"crash", ())])
        world.flush()
        world.check()
        step += 1
    assert step > 0, "the change has at least one step to cut"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_start_cut_at_any_step_is_made_up_for_by_the_next(change: Change, ending: str) -> None:
    how, keeps_cache = ENDINGS[ending]
    steps = count_steps(change)
    step = 0
    while True:
        world = prepared(change)
        rows = list(world.rows)
        assert is_cut(world, steps * 2 // 3, partial(change, world))
        how(world.files)
        if not is_cut(world, step, world.open):
            break
        how(world.files)
        reopen(world, change, rows, keeps_cache)
        step += 1
    assert step > 0, "a start after a crash changes something"


def is_cut(world: LogWorld, steps: int, action: Callable[[], None]) -> bool:
    """Does `action`, and ends the process when it has changed the disk so many times; whether it came to that."""
    world.files.fail_at = world.files.steps + steps
    try:
        action()
    except Cut:
        return True
    finally:
        world.files.fail_at = None
    return False


def count_steps(change: Change) -> int:
    world = prepared(change)
    before = world.files.steps
    change(world)
    return world.files.steps - before


def reopen(world: LogWorld, change: Change, rows_before: list[Row], keeps_cache: bool) -> None:
    world.open()
    log = world.log
    check_log(log, world.files)
    found = rows_of(log)
    offsets = [row.offset for row in found]
    assert offsets == sorted(set(offsets))
    if change in (roll, checkpoint, clean_stop, transactions):
        expected = world.rows[: len(found)]
        assert found[: len(world.rows)] == expected
        kept = [row for row in world.rows if row.offset < world.flushed_offset]
        assert len(found) >= len(kept)
        if keeps_cache:
            assert len(found) >= len(world.rows)
    elif change is compaction:
        known = {row.offset: row for row in world.rows}
        for row in found:
            assert known[row.offset] == row
        newest = {row.key: row.offset for row in world.rows if row.offset < world.flushed_offset}
        latest = {row.key: row.offset for row in found}
        for key, offset in newest.items():
            assert latest.get(key, -1) >= offset
    elif change is delete:
        kept = [row for row in world.rows if row.offset >= log.log_start_offset and row.offset < world.flushed_offset]
        assert [row for row in found if row.offset < world.flushed_offset] == kept
    else:
        assert found in (rows_before[: len(found)], world.rows[: len(found)]), "the log before the cut, or after it"
        cut_offset = rows_before[-1].offset // 2 if change is truncate else 0
        gone = {row for row in rows_before if row.offset < min(cut_offset, world.flushed_offset)} - set(found)
        assert not gone, f"flushed records below the cut are gone: {gone}"
    world.rows = found
    world.flushed_offset = 0
    world.sequences = {p.producer_id: p.last_sequence + 1 for p in log.producers.values()}
    log.set_high_watermark(log.end_offset)
