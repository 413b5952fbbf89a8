"""A clean stop: what is on disk afterwards, and which logs it waits for (rows S14, S17)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import Row, check_log, rows_of
from tests.support.log_world import power_cut, strict_power_cut
from tests.unit.storage.disk import T0, marker, produced, put_file, records, small_config
from tests.unit.storage.test_log_directories import MARKER, A, T, U, directories, opened

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints, names
from penstock.storage.checkpoints import EpochStart
from penstock.storage.log_directories import LogDirectories
from penstock.storage.new_logs import Wanted
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.transaction_index import AbortedTransaction
from penstock.storage.upkeep import compact, retain

CUTS = [strict_power_cut, *(power_cut(seed) for seed in range(8))]


class Known(NamedTuple):
    """What a log says of itself."""

    start_offset: int
    end_offset: int
    bases: list[int]
    rows: list[Row]
    producers: list[tuple[int, ...]]
    aborted: list[AbortedTransaction]


def known_of(log: PartitionLog) -> Known:
    start, end = log.log_start_offset, log.end_offset
    producers: list[tuple[int, ...]] = sorted(
        (one.producer_id, one.epoch, one.last_sequence, one.last_offset, one.transaction_first_offset)
        for one in log.producers.values()
    )
    bases = [segment.base_offset for segment in log.log.segments]
    return Known(start, end, bases, rows_of(log), producers, log.aborted_transactions(start, end))


def write(log: PartitionLog, count: int = 6, *, epoch: int = 1) -> None:
    """Batches whose last timestamp no index has before the log is closed."""
    for _ in range(count):
        known = [one.last_sequence + 1 for one in log.producers.values() if one.producer_id == 7]
        batch = produced(records(timestamp=T0 + log.end_offset), producer_id=7, sequence=known[0] if known else 0)
        log.append_as_leader(batch, leader_epoch=epoch)
    log.set_high_watermark(log.end_offset)


def end_transaction(log: PartitionLog, *, commit: bool) -> None:
    log.append_as_leader(produced(producer_id=9, transactional=True), leader_epoch=1)
    log.append_as_leader(marker(9, commit=commit), leader_epoch=1, origin=Origin.COORDINATOR)
    log.set_high_watermark(log.end_offset)


def lived(**config: object) -> tuple[ForgetfulFiles, LogDirectories]:
    """A directory whose one log was written to, closed, and opened again."""
    files, made = opened(None, **config)
    log = made.create(T, small_config(**config))
    write(log, 4, epoch=0)
    write(log, 16)
    assert made.close() == []
    made = directories(files, **config)
    (report,) = made.open()
    assert report.recovered == []
    return files, made


def syncs_of(files: ForgetfulFiles, action: Callable[[], object]) -> list[str]:
    """Files and directories of partitions that are synced or made meanwhile; not those of the log directory itself."""
    seen: list[str] = []
    inner = files.step

    def step(what: str) -> None:
        if what.startswith(("sync", "create")) and (what.count("/") > 2 or what.startswith(f"sync directory {A}/")):
            seen.append(what)
        inner(what)

    files.step = step  # type: ignore[method-assign]
    action()
    files.step = inner  # type: ignore[method-assign]
    return seen


# What may happen to a log between its start and its stop.
def nothing(_: LogDirectories) -> None:
    pass


def append(made: LogDirectories) -> None:
    write(made.logs[T])


def append_and_flush(made: LogDirectories) -> None:
    write(made.logs[T])
    made.logs[T].flush()


def flush_then_append(made: LogDirectories) -> None:
    append_and_flush(made)
    write(made.logs[T], 1)


def roll(made: LogDirectories) -> None:
    made.logs[T].roll()


def roll_and_flush(made: LogDirectories) -> None:
    made.logs[T].roll()
    made.logs[T].flush()


def roll_and_lose_its_flush(made: LogDirectories) -> None:
    made.logs[T].roll()
    made.logs[T].flush_job()


def flush_then_roll(made: LogDirectories) -> None:
    append_and_flush(made)
    made.logs[T].roll()


def begin_an_epoch(made: LogDirectories) -> None:
    made.logs[T].assign_epoch(5)


def delete_an_epoch(made: LogDirectories) -> None:
    made.logs[T].delete_records(5)


def delete_an_epoch_and_lose_its_flush(made: LogDirectories) -> None:
    made.logs[T].delete_records(5)
    made.logs[T].flush_job()  # no thread ever takes it, as when the threads end first


def cut(made: LogDirectories) -> None:
    made.truncate(T, made.logs[T].end_offset - 2)


def cut_and_write_again(made: LogDirectories) -> None:
    end_offset = made.logs[T].end_offset
    made.truncate(T, end_offset - 2)
    write(made.logs[T], 2, epoch=3)
    assert made.logs[T].end_offset == end_offset


def cut_to_where_a_snapshot_is(made: LogDirectories) -> None:
    made.truncate(T, made.logs[T].log.active.base_offset)


def empty(made: LogDirectories) -> None:
    made.truncate_fully(T, 100)


def empty_and_begin_the_same_epoch(made: LogDirectories) -> None:
    made.truncate_fully(T, 0)
    write(made.logs[T])


def delete_all_that_was_written(made: LogDirectories) -> None:
    write(made.logs[T])
    made.logs[T].delete_records(made.logs[T].end_offset)
    assert made.logs[T].recovery_point == made.logs[T].end_offset, "which no flush has seen"


def delete_all_that_was_written_with_old_timestamps(made: LogDirectories) -> None:
    """Its indexes are finished as they are."""
    log = made.logs[T]
    log.append_as_leader(produced(records(timestamp=T0)), leader_epoch=1)
    log.set_high_watermark(log.end_offset)
    log.delete_records(log.end_offset)


def retain_less(made: LogDirectories) -> None:
    made.logs[T].delete_records(8)
    retain(made.logs[T], ManualClock())


def retain_less_when_the_start_is_on_disk(made: LogDirectories) -> None:
    made.logs[T].delete_records(8)
    made.logs[T].flush()
    retain(made.logs[T], ManualClock())


def forget_producers(made: LogDirectories) -> None:
    assert made.logs[T].expire_producers(-(10**9)) == 1


def abort(made: LogDirectories) -> None:
    end_transaction(made.logs[T], commit=False)


def abort_and_flush(made: LogDirectories) -> None:
    made.logs[T].flush()
    end_transaction(made.logs[T], commit=False)
    made.logs[T].flush()


def create_another(made: LogDirectories) -> None:
    made.create(U, small_config()).assign_epoch(0)


LIVES = [
    nothing,
    append,
    append_and_flush,
    flush_then_append,
    roll,
    roll_and_flush,
    roll_and_lose_its_flush,
    flush_then_roll,
    begin_an_epoch,
    delete_an_epoch,
    delete_an_epoch_and_lose_its_flush,
    cut,
    cut_and_write_again,
    cut_to_where_a_snapshot_is,
    empty,
    empty_and_begin_the_same_epoch,
    delete_all_that_was_written,
    delete_all_that_was_written_with_old_timestamps,
    retain_less,
    retain_less_when_the_start_is_on_disk,
    forget_producers,
    abort,
    abort_and_flush,
    create_another,
]


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("preallocate", [False, True])
def test_after_a_clean_stop_a_power_cut_takes_nothing_whatever_happened_before(
    life: Callable[[LogDirectories], None], preallocate: bool
) -> None:
    for power_goes in CUTS:
        files, made = lived(preallocate=preallocate)
        life(made)
        known = {partition: known_of(log) for partition, log in made.logs.items()}
        epochs = {partition: epochs_of(log) for partition, log in made.logs.items()}
        assert made.close() == []
        power_goes(files)
        for partition, entries in epochs.items():
            assert epochs_on_disk(files, partition, known[partition].end_offset) == entries
        again = directories(files, preallocate=preallocate)
        reports = again.open()
        assert [report.recovered for report in reports] == [[] for _ in known], "the marker spoke the truth"
        assert {partition: known_of(log) for partition, log in again.logs.items()} == known
        for log in again.logs.values():
            assert log.end_offset in log.snapshots.offsets, "no producer has to be looked for"
            if life is not forget_producers:
                check_log(log, files)


def epochs_of(log: PartitionLog) -> list[EpochStart]:
    """Those that have written something."""
    return [one for one in log.leader_epochs.entries if one.start_offset < log.end_offset]


def epochs_on_disk(files: ForgetfulFiles, partition: TopicPartition, end_offset: int) -> list[EpochStart]:
    path = f"{A}/{names.partition_directory(partition)}/{names.LEADER_EPOCHS}"
    return [one for one in checkpoints.read_epochs(files, path) if one.start_offset < end_offset]


def test_a_file_of_epochs_that_could_not_be_read_is_good_after_an_idle_life() -> None:
    files, made = lived()
    epochs, end_offset = epochs_of(made.logs[T]), made.logs[T].end_offset
    made.close()
    put_file(files, f"{A}/t-0/{names.LEADER_EPOCHS}", b"rubbish")
    made = directories(files)
    made.open()
    assert made.close() == []
    strict_power_cut(files)
    assert epochs_on_disk(files, T, end_offset) == epochs


def test_a_log_to_which_nothing_happened_is_not_synced_again() -> None:
    files, made = lived()
    made.logs[T].assign_epoch(5)  # as whoever leads does at each start
    assert syncs_of(files, made.close) == []
    assert files.exists(f"{A}/{MARKER}")


def test_a_log_that_was_written_to_in_its_last_life_is_not_synced_again() -> None:
    files, made = lived()
    write(made.logs[T])
    made.close()
    made = directories(files)
    made.open()  # drops the snapshot at the end before that
    known = known_of(made.logs[T])
    assert syncs_of(files, made.close) == []
    strict_power_cut(files)
    made = directories(files)
    assert [report.recovered for report in made.open()] == [[]]
    assert known_of(made.logs[T]) == known


def test_a_log_without_records_is_not_synced_again_either() -> None:
    files, made = opened()
    made.create(T, small_config()).assign_epoch(0)
    assert syncs_of(files, made.close) != [], "a new one is"
    made = directories(files)
    made.open()
    made.logs[T].assign_epoch(1)
    assert syncs_of(files, made.close) == []


def test_a_new_log_in_a_directory_that_was_left_there_is_synced() -> None:
    files, made = opened()
    config = small_config()
    for _ in range(2):  # nobody takes the first
        job = made.prepare({T: Wanted(None, config)})
        assert job is not None
        job()
    made.create(T, config)
    assert made.close() == []
    strict_power_cut(files)
    assert [report.recovered for report in directories(files).open()] == [[]]
    assert files.exists(f"{A}/t-0/00000000000000000000.log")


def test_only_what_changed_is_synced() -> None:
    path = f"{A}/t-0"
    files, made = lived()
    delete_an_epoch(made)
    assert syncs_of(files, made.close) == [
        f"create {path}/leader-epoch-checkpoint.tmp",
        f"sync {path}/leader-epoch-checkpoint.tmp",
        f"sync directory {path}",
    ]
    files, made = lived()
    forget_producers(made)
    snapshot = f"{path}/{names.segment_file(20, names.SNAPSHOT)}"
    assert syncs_of(files, made.close) == [f"create {snapshot}", f"sync {snapshot}", f"sync directory {path}"]


def test_a_written_log_syncs_its_names_once() -> None:
    files, made = lived()
    write(made.logs[T], epoch=3)
    seen = syncs_of(files, made.close)
    assert seen[-1] == f"sync directory {A}/t-0"
    assert seen.count(seen[-1]) == 1
    assert sum(".log" in step for step in seen) >= 1


def test_after_an_unclean_stop_every_log_is_synced_though_nothing_was_written_since() -> None:
    files, made = lived()
    write(made.logs[T], 2)
    made.checkpoint()
    files.kill()  # the page cache survives, and nobody has synced it
    made = directories(files)
    made.open()
    known = known_of(made.logs[T])
    assert made.close() == []
    strict_power_cut(files)
    made = directories(files)
    assert [report.recovered for report in made.open()] == [[]]
    assert known_of(made.logs[T]) == known


@pytest.mark.parametrize("index_bytes", [1000, 20_000])
def test_room_in_the_indexes_that_the_kernel_wrote_and_a_stop_took_back_is_forgotten_at_the_start(
    index_bytes: int,
) -> None:
    """An idle log's indexes grow at its start and shrink at its stop, unsynced: the disk may have the large ones."""
    files, made = lived(segment_index_bytes=index_bytes)
    known = known_of(made.logs[T])
    base = made.logs[T].log.active.base_offset
    files.write_back()
    assert syncs_of(files, made.close) == []
    strict_power_cut(files)
    index = f"{A}/t-0/{names.segment_file(base, names.OFFSET_INDEX)}"
    assert files.size(index) == index_bytes, "the disk has the large one"
    made = directories(files, segment_index_bytes=index_bytes)
    assert [report.recovered for report in made.open()] == [[]]
    assert known_of(made.logs[T]) == known
    check_log(made.logs[T], files)
    assert made.close() == []


def test_what_was_cut_and_written_again_up_to_the_same_end_is_synced_though_its_indexes_are_finished() -> None:
    files, made = opened(None, segment_bytes=10_000)
    log = made.create(T, small_config(segment_bytes=10_000))
    for _ in range(6):
        log.append_as_leader(produced(records(timestamp=T0)), leader_epoch=0)
    assert made.close() == []
    made = directories(files, segment_bytes=10_000)
    made.open()
    made.truncate(T, 4)
    for _ in range(2):
        made.logs[T].append_as_leader(produced(records(key=b"new", timestamp=T0)), leader_epoch=3)
    known = known_of(made.logs[T])
    assert known.end_offset == 6
    assert made.close() == []
    strict_power_cut(files)
    made = directories(files, segment_bytes=10_000)
    assert [report.recovered for report in made.open()] == [[]]
    assert known_of(made.logs[T]) == known


def test_compacted_segments_are_there_under_their_names() -> None:
    files, made = lived(cleanup_policy="compact")
    log = made.logs[T]
    assert compact(log, files, ManualClock()) is not None
    known = known_of(log)
    assert made.close() == []
    strict_power_cut(files)
    made = directories(files, cleanup_policy="compact")
    made.open()
    assert known_of(made.logs[T]) == known


def test_random_lives_end_well() -> None:
    for seed in range(60):
        choice = random.Random(seed)
        files, made = lived()
        for _ in range(choice.randint(1, 4)):
            life = choice.choice(
                [
                    one
                    for one in LIVES
                    if one not in (create_another, forget_producers, retain_less, retain_less_when_the_start_is_on_disk)
                ]
            )
            if made.logs[T].end_offset - made.logs[T].log_start_offset > 2:
                life(made)
            if choice.random() < 0.4:
                assert made.close() == []
                made = directories(files)
                made.open()
        known, epochs = known_of(made.logs[T]), epochs_of(made.logs[T])
        assert made.close() == []
        power_cut(seed)(files)
        assert epochs_on_disk(files, T, known.end_offset) == epochs, seed
        made = directories(files)
        assert [report.recovered for report in made.open()] == [[]], seed
        assert known_of(made.logs[T]) == known, seed
