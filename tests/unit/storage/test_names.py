"""Names of files and directories, which are Kafka's (row S1)."""

from __future__ import annotations

import uuid

import pytest

from penstock.base.ids import TopicPartition
from penstock.storage import names

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_a_segments_files_carry_its_base_offset_in_twenty_digits() -> None:
    assert names.segment_file(0, names.LOG) == "00000000000000000000.log"
    assert names.segment_file(2**63 - 1, names.TIME_INDEX) == "09223372036854775807.timeindex"


@pytest.mark.parametrize("kind", names.SEGMENT_SUFFIXES)
@pytest.mark.parametrize("suffix", ["", names.CLEANED, names.SWAP, names.DELETED])
def test_every_kind_and_temporary_suffix_is_recognised(kind: str, suffix: str) -> None:
    # KAFKA-5752: log, index, timeindex, txnindex and snapshot alike.
    assert names.parse_segment_file(names.segment_file(42, kind) + suffix) == (42, kind, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "1.log",
        "00000000000000000000.log.cut",
        "00000000000000000000.log.61.cut",
        "00000000000000000000.log.swap.deleted",
        "00000000000000000000.log\n",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert names.parse_segment_file(name) is None


@pytest.mark.parametrize("partition", [TopicPartition("a-b.c_d", 0), TopicPartition("t-1", 2**31 - 1)])
def test_a_partitions_directory_reads_back(partition: TopicPartition) -> None:
    assert names.parse_partition_directory(names.partition_directory(partition)) == partition


@pytest.mark.parametrize(
    "name", ["t", "t-", "-0", "..-0", ".-1", "t-x", "t-007", "t-2147483648", "t-99999999999", "a b-0", "t-0\n", "t--1x"]
)
def test_a_name_that_no_partition_has_is_refused(name: str) -> None:
    assert names.parse_partition_directory(name) is None


def test_a_deleted_directorys_name_is_cut_to_what_a_file_system_takes() -> None:
    name = names.deleted_directory(TopicPartition("x" * 249, 12), ID)
    assert len(name) == 255
    assert names.is_deleted_directory(name)
    assert names.parse_partition_directory(name) is None


def test_directories_on_the_move_are_told_apart() -> None:
    assert names.is_future_directory(f"t-0.{ID.hex}-future")
    assert names.is_future_directory(f"t-0.{ID.hex}-stray")
    assert not names.is_future_directory("t-0")
