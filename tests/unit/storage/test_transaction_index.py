"""The transaction index: its bytes, what a fetch collects, cuts (row S9)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import PATH, new_disk, put_file

from penstock.base.errors import CorruptFileError
from penstock.storage.transaction_index import AbortedTransaction, TransactionIndex, entry_bytes, read_entries

NAME = f"{PATH}/00000000000000000000.txnindex"
FIRST = AbortedTransaction(7, 0, 10, 5)
SECOND = AbortedTransaction(8, 5, 20, 15)
THIRD = AbortedTransaction(7, 15, 30, 31)


def test_an_entry_is_34_bytes_big_endian_with_its_version_first() -> None:
    assert entry_bytes(AbortedTransaction(1, 2, 3, 4)) == bytes.fromhex(
        "0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004"
    )


def test_the_file_exists_only_once_a_transaction_aborted() -> None:
    files = new_disk()
    index = TransactionIndex(files, NAME)
    assert index.collect(0, 100) == ([], False)
    index.truncate_to(0)
    assert not files.exists(NAME)
    index.append(FIRST)
    assert files.read(NAME) == entry_bytes(FIRST)
    index.truncate_to(FIRST.last_offset)
    assert not files.exists(NAME)
    index.append(SECOND)
    assert files.read(NAME) == entry_bytes(SECOND)


def test_what_was_written_is_read_again_and_continued() -> None:
    files = new_disk()
    put_file(files, NAME, entry_bytes(FIRST))
    index = TransactionIndex(files, NAME)
    index.append(SECOND)
    assert read_entries(files.read(NAME), NAME) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("first", "end", "wanted", "done"),
    [
        (0, 5, [FIRST], True),  # the stable offset of the first lies beyond: nothing later can reach back
        (0, 12, [FIRST, SECOND], True),
        (11, 16, [SECOND, THIRD], True),
        (10, 11, [FIRST, SECOND], True),
        (21, 100, [THIRD], False),
        (31, 100, [], False),
    ],
)
def test_a_fetch_collects_the_transactions_that_overlap_it(
    first: int, end: int, wanted: list[AbortedTransaction], done: bool
) -> None:
    files = new_disk()
    put_file(files, NAME, b"".join(map(entry_bytes, (FIRST, SECOND, THIRD))))
    assert TransactionIndex(files, NAME).collect(first, end) == (wanted, done)


@pytest.mark.parametrize(("offset", "kept"), [(10, 0), (11, 1), (20, 1), (21, 2), (31, 3)])
def test_a_cut_drops_transactions_whose_marker_goes(offset: int, kept: int) -> None:
    files = new_disk()
    put_file(files, NAME, b"".join(map(entry_bytes, (FIRST, SECOND, THIRD))))
    index = TransactionIndex(files, NAME)
    index.truncate_to(offset)
    assert len(index.entries) == kept
    assert (files.size(NAME) if files.exists(NAME) else 0) == kept * 34


@pytest.mark.parametrize(
    ("data", "reason"),
    [(entry_bytes(FIRST)[:-1], "not a multiple of 34"), (b"\0\1" + entry_bytes(FIRST)[2:], "version 1")],
)
def test_a_torn_or_foreign_file_is_an_error_that_names_it(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        read_entries(data, NAME)
