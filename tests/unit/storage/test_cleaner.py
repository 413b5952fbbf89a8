"""Compaction, the doing half: which records stay and which go (row S19, pitfalls 5)."""

from __future__ import annotations

import struct

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_checks import batches_of, check_log, rows_of
from tests.unit.storage.disk import (
    PATH,
    listing,
    marker,
    new_disk,
    open_log,
    produced,
    small_config,
)

from penstock.base.clock import ManualClock
from penstock.base.errors import CorruptFileError
from penstock.records.batch import Codec
from penstock.records.build import Record
from penstock.storage import names
from penstock.storage.cleaner import CompactionResult
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin
from penstock.storage.upkeep import (
    compact,
    compaction_job,
    compaction_range,
    remove_files,
)

MAP_BYTES = 4096
DELETE_RETENTION_MS = 1000


class Compacted:
    """A compacted log, its clock, and rounds on demand."""

    def __init__(self, **config: object) -> None:
        settings: dict[str, object] = {
            "cleanup_policy": "compact",
            "delete_retention_ms": DELETE_RETENTION_MS,
            "segment_bytes": 1000,
        }
        settings.update(config)
        self.files: ForgetfulFiles = new_disk()
        self.clock = ManualClock()
        self.config = small_config(**settings)
        self.log: PartitionLog
        self.log, _ = open_log(self.files, config=self.config, clock=self.clock)
        self.clean_offset: int | None = None

    def put(self, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE, **producer: int) -> int:
        values: list[Record] = [(self.clock.wall_ms(), key, value, ()) for key, value in pairs]
        return self._append(produced(values, codec=codec, **producer))  # type: ignore[arg-type]

    def put_in_transaction(self, producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None]) -> int:
        values: list[Record] = [(self.clock.wall_ms(), key, value, ()) for key, value in pairs]
        return self._append(produced(values, producer_id=producer_id, sequence=sequence, transactional=True))

    def end(self, producer_id: int, *, commit: bool) -> int:
        data = marker(producer_id, commit=commit, timestamp=self.clock.wall_ms())
        return self._append(data, Origin.COORDINATOR)

    def _append(self, data: bytes, origin: Origin = Origin.CLIENT) -> int:
        result = self.log.append_as_leader(data, leader_epoch=0, origin=origin)
        self.log.set_high_watermark(self.log.end_offset)
        return result.base_offset

    def round(self, map_bytes: int = MAP_BYTES, *, roll: bool = True) -> int | None:
        """Rolls and flushes, so that everything may be cleaned, and cleans."""
        if roll:
            self.log.roll()
        self.log.flush()
        found = compact(self.log, self.files, self.clock, last_clean_offset=self.clean_offset, map_bytes=map_bytes)
        if found is not None:
            self.clean_offset = found
        remove_files(self.files, self.log.removals.take_due(everything=True))
        check_log(self.log, self.files)
        return found

    def job_result(self) -> CompactionResult:
        self.log.roll()
        self.log.flush()
        wanted = compaction_range(self.log, self.clock, self.clean_offset)
        assert wanted is not None
        return compaction_job(self.log, self.files, self.clock, wanted, map_bytes=MAP_BYTES, seed=bytes(16)).run()

    def contents(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(row.offset, row.key, row.value) for row in rows_of(self.log) if not row.control]

    def markers(self) -> list[int]:
        return [row.offset for row in rows_of(self.log) if row.control]

    def shells(self) -> list[int]:
        return [batch.last_offset for batch in batches_of(self.log) if batch.record_count == 0]


def test_every_file_of_a_cleaned_segment_is_synced_before_it_takes_a_place() -> None:
    world = Compacted()
    world.put_in_transaction(7, 0, (b"a", b"1"))
    world.end(7, commit=False)
    world.put((b"b", b"2"))
    seen: list[str] = []
    inner = world.files.step

    def step(what: str) -> None:
        seen.append(what)
        inner(what)

    world.files.step = step  # type: ignore[method-assign]
    world.job_result()
    kinds = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)
    synced = [f"sync {PATH}/{names.segment_file(0, kind)}{names.CLEANED}" for kind in kinds]
    assert set(synced) <= set(seen)
    assert seen[-1] == f"sync directory {PATH}", "their names too"


# Records.
@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_record_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    world = Compacted()
    world.put((b"a", b"1"), (b"b", b"1"), codec=codec)
    world.put((b"a", b"2"), (b"c", b"1"), codec=codec)
    world.put((b"a", b"3"), codec=codec)
    assert world.round() == 5
    assert world.contents() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert world.log.end_offset == 5


def test_a_round_over_a_clean_log_finds_nothing_to_do() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    assert world.round() == 1
    assert world.round() is None
    world.put((b"a", b"2"))
    assert world.round() == 2
    assert world.contents() == [(1, b"a", b"2")]


def test_a_round_in_which_every_record_goes_leaves_a_log_that_reads_and_continues() -> None:
    # KAFKA-6854: all batches of a segment filtered.
    world = Compacted()
    for number in range(12):
        world.put((b"a", b"%d" % number * 60))
    world.log.roll()
    world.put((b"a", b"last"))
    world.round()
    assert world.contents() == [(12, b"a", b"last")]
    assert world.put((b"a", b"more")) == 13


def test_a_batch_larger_than_today_s_largest_message_is_cleaned_all_the_same() -> None:
    # KAFKA-6834
    world = Compacted(segment_bytes=100_000, segment_index_bytes=10_000)
    world.put((b"a", b"x" * 50_000))
    world.put((b"b", b"y" * 50))
    world.log.update_config(small_config(cleanup_policy="compact", max_message_bytes=100, segment_bytes=100_000))
    world.put((b"b", b"z"))
    world.round()
    assert [offset for offset, _, _ in world.contents()] == [0, 2]


@pytest.mark.parametrize("map_bytes", [48, 72, 120])
def test_a_map_that_fills_in_the_middle_of_a_segment_ends_the_round_there_and_the_next_goes_on(map_bytes: int) -> None:
    # KAFKA-3587
    world = Compacted()
    for number in range(30):
        world.put((b"k%d" % (number % 6), b"%d" % number))
    clean = -1
    rounds = 0
    while (found := world.round(map_bytes)) is not None:
        assert found > clean, "each round comes further"
        clean = found
        rounds += 1
    assert rounds > 1
    assert world.contents()[-6:] == [(offset, b"k%d" % (offset % 6), b"%d" % offset) for offset in range(24, 30)]


def test_segments_merge_and_stay_indexable() -> None:
    # KAFKA-5413, 2024
    world = Compacted(segment_bytes=400, index_interval_bytes=0)
    for number in range(60):
        world.put((b"k%d" % (number % 5 if number % 2 else number), b"%d" % number * 20))
    world.round()
    before = len(world.log.log.sealed)
    world.put((b"x", b"y"))
    world.round()
    assert len(world.log.log.sealed) < before
    assert any(segment.offset_index.entries > 1 for segment in world.log.log.sealed)
    snapshots = {int(name[:20]) for name in listing(world.files) if name.endswith(names.SNAPSHOT)}
    assert snapshots <= {segment.base_offset for segment in world.log.log.segments}, "they go with their segments"
    for offset, key, value in world.contents():
        assert rows_of(world.log, from_offset=offset)[0][2:4] == (key, value)


def test_emptied_segments_join_the_next_round_s_first_group_and_are_not_left_behind() -> None:
    # KAFKA-12889
    world = Compacted(segment_bytes=200)
    for number in range(20):
        world.put((b"a", b"%d" % number * 50))
    world.round()
    world.put((b"b", b"1"))
    world.round()
    assert [segment.base_offset for segment in world.log.log.sealed if segment.size_bytes == 0] == []
    assert [offset for offset, _, _ in world.contents()] == [19, 20]


def test_the_zeroes_of_preallocated_files_do_not_reach_the_cleaned_segment() -> None:
    # KAFKA-5431
    world = Compacted(preallocate="true")
    for number in range(20):
        world.put((b"a%d" % (number % 3), b"%d" % number * 30))
    world.round()
    for segment in world.log.log.sealed:
        assert world.files.size(segment.path(names.LOG)) == segment.size_bytes


def test_a_bad_batch_ends_the_round_with_an_error_and_changes_nothing() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.log.roll()
    world.log.flush()
    path = world.log.log.sealed[0].path(names.LOG)
    damaged = bytearray(world.files.read(path))
    damaged[-1] ^= 1
    world.files.open(path).pwrite(damaged, 0)
    with pytest.raises(CorruptFileError, match="BAD_CRC"):
        compact(world.log, world.files, world.clock, map_bytes=MAP_BYTES)
    assert world.files.read(path) == damaged


# Tombstones.
def test_a_tombstone_lives_for_its_retention_from_the_round_that_met_it_and_no_longer() -> None:
    # KAFKA-8522, 4529: neither for ever nor too short, whatever else is cleaned meanwhile (KIP-534).
    world = Compacted()
    world.put((b"a", b"1"))
    world.clock.advance(10**6)  # how old the record is does not count
    world.put((b"a", None))
    world.round()
    assert world.contents() == [(1, b"a", None)]
    world.clock.advance(DELETE_RETENTION_MS - 1)
    world.put((b"b", b"1"))
    world.round()
    assert (1, b"a", None) in world.contents()
    world.clock.advance(1)
    world.put((b"b", b"2"))
    world.round()
    assert world.contents() == [(3, b"b", b"2")]


def test_a_tombstones_timestamp_is_the_same_after_its_horizon_is_set() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"a", None), (b"b", b"1"))
    stamps = [(row.offset, row.timestamp) for row in rows_of(world.log)][1:]
    world.clock.advance(500)
    world.round()
    assert [(row.offset, row.timestamp) for row in rows_of(world.log)] == stamps


def test_no_retention_at_all_removes_a_tombstone_in_the_second_round() -> None:
    world = Compacted(delete_retention_ms=0)
    world.put((b"a", None))
    world.round()
    assert world.contents() == [(0, b"a", None)], "the first round sets the horizon"
    world.put((b"b", b"1"))
    world.round()
    assert world.contents() == [(1, b"b", b"1")]


# Transactions.
def test_aborted_records_go_and_committed_ones_stay() -> None:
    world = Compacted()
    world.put_in_transaction(7, 0, (b"a", b"good"))
    world.end(7, commit=True)
    world.put_in_transaction(7, 1, (b"a", b"bad"), (b"b", b"bad"))
    world.end(7, commit=False)
    world.round()
    assert world.contents() == [(0, b"a", b"good")]
    assert world.markers() == [1, 4]


def test_a_marker_stays_until_its_records_are_gone_and_its_retention_has_passed() -> None:
    # KAFKA-13727
    world = Compacted()
    world.put_in_transaction(7, 0, (b"a", b"1"))
    end = world.end(7, commit=True)
    world.put_in_transaction(7, 1, (b"z", b"1"))
    world.end(7, commit=True)
    world.round()
    world.clock.advance(10 * DELETE_RETENTION_MS)
    world.put((b"b", b"1"))
    world.round()
    assert end in world.markers(), "its record is still there"
    world.put((b"a", b"2"))
    world.round()
    assert end in world.markers(), "its record went in this very round"
    world.put((b"b", b"2"))
    world.round()
    assert end in world.markers(), "this round found nothing to mark: its retention begins"
    world.clock.advance(DELETE_RETENTION_MS)
    world.put((b"b", b"3"))
    world.round()
    assert end not in world.markers()


def test_an_abort_marker_outlives_the_round_that_removed_its_records() -> None:
    # KAFKA-13727: a reader in the middle of the transaction still has to learn how it ended.
    world = Compacted(delete_retention_ms=0)
    world.put_in_transaction(7, 0, (b"a", b"1"))
    end = world.end(7, commit=False)
    world.put_in_transaction(7, 1, (b"z", b"1"))
    world.end(7, commit=True)
    world.round()
    assert end in world.markers()
    assert [entry.last_offset for entry in world.log.aborted_transactions(0, 10)] == [end]


def test_a_transaction_that_spans_groups_of_segments_is_recognised_in_each() -> None:
    # KAFKA-8351
    world = Compacted(segment_bytes=200)
    for number in range(6):
        world.put_in_transaction(7, number, (b"a%d" % number, b"bad" * 40))
        world.put((b"plain%d" % number, b"good" * 30))
    end = world.end(7, commit=False)
    world.put((b"last", b"1"))
    assert len(world.log.log.segments) > 3
    world.round()
    assert [key for _, key, _ in world.contents()] == [b"plain%d" % number for number in range(6)] + [b"last"]
    assert end in world.markers()


def test_the_records_of_an_open_transaction_are_not_cleaned() -> None:
    # KAFKA-13194: nothing at or above the last stable offset.
    world = Compacted(segment_bytes=200)
    world.put((b"a", b"1" * 80))
    world.put((b"a", b"2" * 80))
    world.put_in_transaction(7, 0, (b"a", b"3" * 80))
    world.put((b"a", b"4" * 80))
    world.put((b"b", b"5" * 80))
    world.round()
    assert [offset for offset, _, _ in world.contents()] == [1, 2, 3, 4]
    world.end(7, commit=False)
    world.round()
    assert [(offset, value) for offset, key, value in world.contents() if key == b"a"] == [(3, b"4" * 80)]


def test_what_is_not_flushed_is_not_cleaned() -> None:
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.log.roll()
    assert compaction_range(world.log, world.clock, None) is None
    world.log.flush()
    assert compaction_range(world.log, world.clock, None) is not None


@pytest.mark.parametrize("control_type", [0, 1])
def test_a_users_key_that_looks_like_a_markers_removes_no_marker(control_type: int) -> None:
    # KAFKA-14055
    world = Compacted()
    world.put_in_transaction(7, 0, (b"a", b"1"))
    end = world.end(7, commit=bool(control_type))
    world.put((struct.pack(">hh", 0, control_type), b"a user's value"))
    world.round()
    assert end in world.markers()
    assert world.contents()[-1] == (2, struct.pack(">hh", 0, control_type), b"a user's value")


# Producers, and the end of the log.
def test_the_last_batch_of_a_producer_stays_as_a_shell_with_its_sequence() -> None:
    # KAFKA-5490, 8335: by offset, not by sequence.
    world = Compacted()
    world.put((b"a", b"1"), producer_id=7, sequence=0)
    world.put((b"a", b"2"), producer_id=7, sequence=1)
    world.put((b"a", b"3"))
    world.round()
    assert world.shells() == [1]
    shell = next(batch for batch in batches_of(world.log) if batch.record_count == 0)
    assert (shell.producer_id, shell.base_sequence, shell.base_offset) == (7, 1, 1)
    world.log.close()
    world.files.remove(world.log.snapshots.path(world.log.end_offset))
    reopened, _ = open_log(world.files, config=world.config)
    known = reopened.producers.get(7)
    assert known is not None
    assert known.last_sequence == 1


def test_a_shell_goes_when_its_producer_has_a_newer_batch() -> None:
    # KAFKA-8335: or every producer's every last batch would stay for ever.
    world = Compacted()
    world.put((b"a", b"1"), producer_id=7, sequence=0)
    world.put((b"a", b"2"))
    world.round()
    assert world.shells() == [0]
    world.put((b"a", b"3"), producer_id=7, sequence=1)
    world.put((b"a", b"4"))
    world.round()
    assert world.shells() == [2]


def test_a_marker_that_is_all_that_is_left_of_a_producer_stays_as_a_shell_until_it_writes_again() -> None:
    world = Compacted(delete_retention_ms=0)
    world.end(7, commit=False)
    for number in range(3):
        world.put((b"b", b"%d" % number))
        world.round()
    assert world.markers() == []
    assert world.shells() == [0], "it carries the producer's epoch"
    world.put((b"c", b"1"), producer_id=7, sequence=0)
    world.round()
    assert world.shells() == []


def test_the_last_batch_of_a_round_stays_so_that_the_end_offset_is_not_lost() -> None:
    # KAFKA-17076
    world = Compacted()
    world.put((b"a", b"1"))
    world.put((b"b", None))
    world.round()
    world.clock.advance(DELETE_RETENTION_MS)
    world.clean_offset = None
    world.round(roll=False)
    assert world.contents() == [(0, b"a", b"1")]
    assert world.shells() == [1]
    world.log.flush()
    world.log.abandon()
    active = world.log.log.active
    for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        world.files.remove(active.path(kind))
    reopened, _ = open_log(world.files, config=world.config, gaps_are_holes=False)
    assert reopened.end_offset == 2
