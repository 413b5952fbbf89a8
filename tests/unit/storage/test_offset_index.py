"""The offset index: its bytes, look-ups, cuts and the check when it is opened (row S7)."""

from __future__ import annotations

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.disk import PATH, new_disk, put_file

from penstock.base.errors import CorruptFileError
from penstock.storage.offset_index import OffsetEntry, OffsetIndex

NAME = f"{PATH}/00000000000000001000.index"


def active(files: ForgetfulFiles, bytes_max: int = 80) -> OffsetIndex:
    index = OffsetIndex(files, NAME, 1000)
    index.open_active(bytes_max)
    return index


def filled(files: ForgetfulFiles, *offsets: int) -> OffsetIndex:
    index = active(files)
    for slot, offset in enumerate(offsets):
        index.append(offset, slot * 100)
    return index


def test_an_entry_is_a_relative_offset_and_a_position_big_endian() -> None:
    files = new_disk()
    filled(files, 1005, 1000 + 2**31 - 1).close()
    assert files.read(NAME) == bytes.fromhex("00000005 00000000 7fffffff 00000064")


def test_a_look_up_gives_the_last_entry_at_or_below_the_offset() -> None:
    index = filled(new_disk(), 1005, 1010, 1020)
    wanted = {
        1000: (1000, 0),
        1004: (1000, 0),
        1005: (1005, 0),
        1019: (1010, 100),
        1020: (1020, 200),
        9999: (1020, 200),
    }
    assert {offset: tuple(index.look_up(offset)) for offset in wanted} == wanted


def test_an_empty_index_leads_to_the_segments_start() -> None:
    assert active(new_disk()).look_up(5000) == OffsetEntry(1000, 0)


def test_an_active_file_is_preallocated_and_trimmed_to_its_entries_when_closed() -> None:
    files = new_disk()
    index = active(files, 83)
    assert files.size(NAME) == 80, "whole entries only"
    index.append(1001, 7)
    index.close()
    assert files.size(NAME) == 8


def test_entries_stay_in_place_when_a_trimmed_file_grows_again() -> None:
    # KAFKA-748: the position of the next entry is kept across a resize.
    files = new_disk()
    filled(files, 1005, 1010).close()
    index = active(files, 160)
    index.append(1020, 200)
    assert [index.entry(slot).offset for slot in range(index.entries)] == [1005, 1010, 1020]
    index.close()
    assert files.size(NAME) == 24


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        (1000, []),
        (1004, []),
        (1005, []),
        (1006, [1005]),
        (1010, [1005]),
        (1011, [1005, 1010]),
        (1021, [1005, 1010, 1020]),
    ],
)
def test_a_cut_drops_the_entry_of_the_very_offset_and_all_beyond(offset: int, kept: list[int]) -> None:
    # KAFKA-588: off by one kept the entry equal to the cut, or lost the one before it.
    index = filled(new_disk(), 1005, 1010, 1020)
    index.truncate_to(offset)
    assert [index.entry(slot).offset for slot in range(index.entries)] == kept


def test_a_cut_leaves_zeroes_behind_the_entries_it_kept() -> None:
    files = new_disk()
    index = filled(files, 1005, 1010)
    index.truncate_to(1010)
    index.sync()
    assert files.read(NAME)[8:] == bytes(72)


def test_a_size_that_fits_no_entries_is_an_error() -> None:
    files = new_disk()
    put_file(files, NAME, bytes(13))
    with pytest.raises(CorruptFileError, match="not a multiple of 8"):
        OffsetIndex(files, NAME, 1000).open_sealed()


def test_an_index_that_ends_in_preallocated_zeroes_fails_its_check() -> None:
    files = new_disk()
    put_file(files, NAME, bytes.fromhex("00000005 00000000") + bytes(24))
    index = OffsetIndex(files, NAME, 1000)
    index.open_sealed()
    with pytest.raises(CorruptFileError, match="not above the base"):
        index.check()


def test_an_index_with_one_entry_for_the_base_itself_is_good() -> None:
    index = filled(new_disk(), 1000)
    index.check()


def test_the_first_entry_beyond_a_position_bounds_what_a_read_can_hold() -> None:
    index = filled(new_disk(), 1005, 1010, 1020)
    assert index.first_beyond_position(100) == OffsetEntry(1010, 100)
    assert index.first_beyond_position(101) == OffsetEntry(1020, 200)
    assert index.first_beyond_position(201) is None
