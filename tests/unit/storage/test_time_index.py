"""The time index: its bytes, growth, look-ups and cuts (row S8)."""

from __future__ import annotations

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.disk import PATH, T0, new_disk, put_file

from penstock.base.errors import CorruptFileError
from penstock.storage.time_index import TimeEntry, TimeIndex

NAME = f"{PATH}/00000000000000001000.timeindex"


def filled(files: ForgetfulFiles, *entries: tuple[int, int], bytes_max: int = 120) -> TimeIndex:
    index = TimeIndex(files, NAME, 1000)
    index.open_active(bytes_max)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


def entries_of(index: TimeIndex) -> list[TimeEntry]:
    return [index.entry(slot) for slot in range(index.entries)]


def test_an_entry_is_a_timestamp_and_a_relative_offset_big_endian() -> None:
    files = new_disk()
    filled(files, (T0, 1007)).close()
    assert files.read(NAME) == bytes.fromhex("0000018bcfe56800 00000007")


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    index = filled(new_disk(), (10, 1001), (10, 1005), (9, 1006), (11, 1007))
    assert entries_of(index) == [(10, 1001), (11, 1007)]


def test_it_is_full_one_slot_early_so_that_the_final_entry_fits() -> None:
    index = filled(new_disk(), (10, 1001), (11, 1002), bytes_max=48)
    assert not index.is_full
    index = filled(new_disk(), (10, 1001), (11, 1002), bytes_max=36)
    assert index.is_full
    assert index.maybe_append(12, 1003), "the last slot is the final entry's"


def test_a_look_up_gives_the_last_entry_at_or_below_the_timestamp() -> None:
    index = filled(new_disk(), (10, 1001), (20, 1005))
    assert index.look_up(9) == TimeEntry(-1, 1000)
    assert index.look_up(10) == TimeEntry(10, 1001)
    assert index.look_up(19) == TimeEntry(10, 1001)
    assert index.look_up(2**62) == TimeEntry(20, 1005)


@pytest.mark.parametrize(("offset", "kept"), [(1001, 0), (1002, 1), (1005, 1), (1006, 2)])
def test_a_cut_drops_entries_at_the_offset_and_beyond(offset: int, kept: int) -> None:
    index = filled(new_disk(), (10, 1001), (20, 1005))
    index.truncate_to(offset)
    assert index.entries == kept


def test_timestamps_that_fall_fail_the_check() -> None:
    files = new_disk()
    put_file(files, NAME, bytes.fromhex("0000000000000014 00000001") + bytes(12))
    index = TimeIndex(files, NAME, 1000)
    index.open_sealed()
    with pytest.raises(CorruptFileError, match="timestamps fall"):
        index.check()
