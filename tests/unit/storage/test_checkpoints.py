"""Checkpoints, partition.metadata, meta.properties, the clean marker: bytes, and what a crash or bad bytes mean (S17)."""

from __future__ import annotations

import uuid

import pytest
from tests.support.forgetful_files import Cut, ForgetfulFiles
from tests.unit.storage.disk import PATH, ROOT, new_disk, put_file

from penstock.base.errors import CorruptFileError
from penstock.base.ids import TopicPartition
from penstock.storage import checkpoints
from penstock.storage.checkpoints import EpochStart

NAME = f"{ROOT}/recovery-point-offset-checkpoint"
EPOCHS = f"{PATH}/leader-epoch-checkpoint"
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_an_offset_checkpoint_is_version_count_and_a_line_for_each_partition() -> None:
    files = new_disk()
    checkpoints.write_offsets(files, NAME, {TopicPartition("b", 1): 2**62, TopicPartition("a", 10): 7})
    assert files.read(NAME) == b"0\n2\na 10 7\nb 1 4611686018427387904\n"


def test_a_leader_epoch_checkpoint_is_version_count_and_a_line_for_each_epoch() -> None:
    files = new_disk()
    checkpoints.write_epochs(files, EPOCHS, [EpochStart(0, 0), EpochStart(3, 25)])
    assert files.read(EPOCHS) == b"0\n2\n0 0\n3 25\n"
    assert checkpoints.read_epochs(files, EPOCHS) == [EpochStart(0, 0), EpochStart(3, 25)]


def test_partition_metadata_names_the_topic_id_in_kafkas_base64() -> None:
    files = new_disk()
    checkpoints.write_topic_id(files, PATH, TOPIC_ID)
    assert files.read(f"{PATH}/partition.metadata") == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n"
    assert checkpoints.read_topic_id(files, PATH) == TOPIC_ID


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n",
        b"version: 0\n",
        b"version: 0\ntopic_id: short\n",
        b"version: 0\ntopic_id: !!!!\n",
        b"\xff\xfe",
    ],
)
def test_partition_metadata_that_cannot_be_read_is_an_error_that_names_the_file(data: bytes) -> None:
    files = new_disk()
    put_file(files, f"{PATH}/partition.metadata", data)
    with pytest.raises(CorruptFileError, match=r"partition\.metadata"):
        checkpoints.read_topic_id(files, PATH)


def test_meta_properties_are_sorted_lines_after_a_comment() -> None:
    files = new_disk()
    checkpoints.write_meta_properties(files, ROOT, {"version": "1", "cluster.id": "x=y", "node.id": "1"})
    assert files.read(f"{ROOT}/meta.properties") == b"#\ncluster.id=x=y\nnode.id=1\nversion=1\n"
    assert checkpoints.read_meta_properties(files, ROOT) == {"version": "1", "cluster.id": "x=y", "node.id": "1"}


def test_the_clean_marker_is_kafkas_json() -> None:
    files = new_disk()
    checkpoints.write_clean_marker(files, ROOT)
    assert files.read(f"{ROOT}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'


@pytest.mark.parametrize(
    "data",
    [
        b"0\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na 0 9x\n",
        b"0\n-1\n",
        b"\xff\xff",
    ],
)
def test_a_checkpoint_that_is_not_whole_is_an_error(data: bytes) -> None:
    files = new_disk()
    put_file(files, NAME, data)
    with pytest.raises(CorruptFileError, match="recovery-point-offset-checkpoint"):
        checkpoints.read_offsets(files, NAME)


def test_no_file_is_no_offsets() -> None:
    assert checkpoints.read_offsets(new_disk(), NAME) == {}


def test_an_empty_file_is_no_offsets_as_it_is_for_kafka() -> None:
    files = new_disk()
    put_file(files, NAME, b"")
    assert checkpoints.read_offsets(files, NAME) == {}


@pytest.mark.parametrize("strict", [True, False])
def test_a_write_cut_at_any_step_leaves_the_old_file_or_the_new_one(strict: bool) -> None:
    # KAFKA-1539, 16541, 3968: the bytes are synced before the rename, the directory after it.
    old, new = {TopicPartition("a", 0): 1}, {TopicPartition("a", 0): 22}
    step = 0
    while True:
        files = new_disk()
        checkpoints.write_offsets(files, NAME, old)
        files.fail_at = files.steps + step
        try:
            checkpoints.write_offsets(files, NAME, new)
        except Cut:
            _end(files, strict)
            assert checkpoints.read_offsets(files, NAME) in (old, new)
            checkpoints.write_offsets(files, NAME, new)
            step += 1
            continue
        break
    assert step >= 5, "create, write, sync, rename, sync of the directory"
    _end(files, strict)
    assert checkpoints.read_offsets(files, NAME) == new, "a write that returned is on disk"


def _end(files: ForgetfulFiles, strict: bool) -> None:
    if strict:
        files.forget_everything_unsynced()
    else:
        files.kill()
