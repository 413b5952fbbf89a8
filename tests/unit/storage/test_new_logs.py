"""Logs that are made on a thread before they are created: `create` then touches no file."""

from __future__ import annotations

import uuid

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.log_world import strict_power_cut
from tests.unit.storage.disk import fail_when, produced, records, small_config

from penstock.base.clock import ManualClock
from penstock.base.errors import StorageError
from penstock.base.ids import TopicPartition
from penstock.storage.log_directories import LogDirectories
from penstock.storage.new_logs import Wanted

ID = uuid.UUID(int=7)
MANY = [TopicPartition("t", number) for number in range(10)]


def opened(files: ForgetfulFiles, *paths: str) -> LogDirectories:
    made = LogDirectories(paths or ("/a",), files, ManualClock(), config_for=lambda _partition: small_config())
    made.open()
    files.sync_directory("")
    return made


def prepare(made: LogDirectories, **config: object) -> None:
    job = made.prepare({partition: Wanted(ID, small_config(**config)) for partition in MANY})
    assert job is not None
    job()


def test_what_was_prepared_is_created_without_touching_a_file() -> None:
    files = ForgetfulFiles()
    made = opened(files)
    prepare(made)
    before = files.steps
    for partition in MANY:
        assert made.create(partition, small_config(), ID).topic_id == ID
    assert files.steps == before
    strict_power_cut(files)
    again = opened(files)
    assert [again.logs[partition].topic_id for partition in MANY] == [ID] * len(MANY)


def test_what_was_prepared_is_spread_over_the_directories() -> None:
    made = opened(ForgetfulFiles(), "/a", "/b")
    prepare(made)
    for partition in MANY:
        made.create(partition, small_config(), ID)
    homes = [made.home(partition).path for partition in MANY]
    assert (homes.count("/a"), homes.count("/b")) == (5, 5)


@pytest.mark.parametrize("how", ["config", "topic_id"])
def test_what_was_prepared_otherwise_than_it_is_wanted_is_made_anew(how: str) -> None:
    files = ForgetfulFiles()
    made = opened(files)
    prepare(made, **({"segment_index_bytes": 48} if how == "config" else {}))
    wanted = uuid.UUID(int=8) if how == "topic_id" else ID
    log = made.create(MANY[0], small_config(), wanted)
    assert log.topic_id == wanted
    assert log.config == small_config()
    log.append_as_leader(produced(records(size=40)), leader_epoch=0)
    made.close()
    assert opened(files).logs[MANY[0]].end_offset == 1


def test_what_could_not_be_prepared_fails_the_directory_when_it_is_created() -> None:
    files = ForgetfulFiles()
    made = opened(files)
    job = made.prepare({partition: Wanted(ID, small_config()) for partition in MANY})
    assert job is not None
    fail_when(files, lambda what: what.startswith("create ") and what.endswith(".log"))
    with pytest.raises(OSError, match="Input/output error"):
        job()
    with pytest.raises(StorageError):
        made.create(MANY[0], small_config(), ID)
    assert made.directories[0].health.failure is not None


def test_a_partition_that_is_held_is_not_prepared() -> None:
    made = opened(ForgetfulFiles())
    log = made.create(MANY[0], small_config(), ID)
    assert made.prepare({MANY[0]: Wanted(ID, small_config())}) is None
    assert made.logs[MANY[0]] is log


def test_what_was_prepared_and_never_wanted_is_an_empty_log_after_the_next_start() -> None:
    files = ForgetfulFiles()
    made = opened(files)
    prepare(made)
    assert made.close() == []
    assert [log.end_offset for log in opened(files).logs.values()] == [0] * len(MANY)
