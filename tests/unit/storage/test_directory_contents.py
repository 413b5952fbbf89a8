"""A directory that may not be opened is refused before anything in it changes; links are followed (row S17)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.disk import produced, put_file, small_config
from tests.unit.storage.test_recovery import old_message

from penstock.base.clock import ManualClock
from penstock.base.errors import LogDirectoryError, PenstockError, UnsupportedForMessageFormatError
from penstock.base.files import Files, SystemFiles
from penstock.base.ids import TopicPartition
from penstock.base.jobs import ThreadJobs
from penstock.storage import names
from penstock.storage.log_directories import LogDirectories

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def directories(files: Files, *paths: str, node_id: int | None = None) -> LogDirectories:
    return LogDirectories(
        paths, files, ManualClock(), config_for=lambda _partition: small_config(), jobs=ThreadJobs(2), node_id=node_id
    )


def closed(files: Files, path: str, *partitions: TopicPartition) -> None:
    """A directory that was closed cleanly, with some records in each partition."""
    made = directories(files, path)
    made.open()
    for partition in partitions:
        log = made.create(partition, small_config())
        for _ in range(20):
            log.append_as_leader(produced(), leader_epoch=0)
        log.set_high_watermark(log.end_offset)
    assert made.close() == []


def contents(files: ForgetfulFiles, path: str) -> dict[str, bytes]:
    found = {}
    for name in files.list(path):
        if files.is_directory(f"{path}/{name}"):
            found.update(contents(files, f"{path}/{name}"))
        elif name != names.LOCK:
            found[f"{path}/{name}"] = files.read(f"{path}/{name}")
    return found


# Owners.
@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_a_directory_of_another_node_is_refused_and_left_as_it_was(key: str) -> None:
    files = ForgetfulFiles()
    closed(files, "/a", T)
    put_file(files, "/a/meta.properties", f"#\nversion=1\n{key}=3\ncluster.id=abc\n".encode())
    before = contents(files, "/a")
    with pytest.raises(LogDirectoryError, match=r"/a belongs to node 3 .*, this is node 1"):
        directories(files, "/a", node_id=1).open()
    assert contents(files, "/a") == before
    made = directories(files, "/a", node_id=3)
    assert [report.recovered for report in made.open()] == [[]]
    assert made.cluster_id == "abc"


def test_directories_of_two_clusters_are_refused_and_both_stay_clean() -> None:
    files = ForgetfulFiles()
    for path, cluster, partition in (("/a", "abc", T), ("/b", "def", U)):
        closed(files, path, partition)
        put_file(files, f"{path}/meta.properties", f"version=1\nnode.id=1\ncluster.id={cluster}\n".encode())
    before = contents(files, "/a") | contents(files, "/b")
    with pytest.raises(LogDirectoryError, match="/b belongs to cluster def, /a to cluster abc"):
        directories(files, "/a", "/b", node_id=1).open()
    assert contents(files, "/a") | contents(files, "/b") == before


def test_a_tool_that_is_no_node_opens_any_directory() -> None:
    files = ForgetfulFiles()
    closed(files, "/a", T)
    for data in (b"version=1\nnode.id=9\n", b"\xff\xfe"):
        put_file(files, "/a/meta.properties", data)
        with pytest.raises(PenstockError, match=r"meta\.properties"):
            directories(files, "/a", node_id=1).open()
        made = directories(files, "/a")
        assert [report.recovered for report in made.open()] == [[]]
        assert made.close() == []


# Refused half way.
@pytest.mark.parametrize("others", [(), (U, TopicPartition("v", 0), TopicPartition("a", 5))])
def test_a_clean_directory_that_is_refused_keeps_its_clean_marker(others: tuple[TopicPartition, ...]) -> None:
    files = ForgetfulFiles()
    closed(files, "/a", T, *others)
    stem = f"/a/t-0/{names.segment_file(0, '')}"
    for name in [name for name in files.list("/a/t-0") if names.parse_segment_file(name)]:
        files.remove(f"/a/t-0/{name}")
    for kind, data in ((names.LOG, old_message(0)), (names.OFFSET_INDEX, b""), (names.TIME_INDEX, b"")):
        put_file(files, stem + kind, data)
    put_file(files, f"/a/{names.CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":77}')  # as Kafka wrote it
    before = contents(files, "/a")
    with pytest.raises(UnsupportedForMessageFormatError):
        directories(files, "/a").open()
    assert contents(files, "/a") == before
    for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        files.remove(stem + kind)
    assert [report.recovered for report in directories(files, "/a").open() if report.partition != T] == [[]] * len(
        others
    )


def test_a_directory_that_was_not_clean_does_not_become_so_by_being_refused() -> None:
    files = ForgetfulFiles()
    closed(files, "/a", T)
    files.remove(f"/a/{names.CLEAN_SHUTDOWN}")
    files.remove(f"/a/{names.RECOVERY_POINTS}")
    put_file(files, f"/a/t-0/{names.segment_file(0, names.LOG)}", old_message(0))
    with pytest.raises(PenstockError):
        directories(files, "/a").open()
    assert not files.exists(f"/a/{names.CLEAN_SHUTDOWN}")


def test_the_first_directory_stays_clean_where_the_second_is_foreign() -> None:
    files = ForgetfulFiles()
    closed(files, "/a", T)
    files.make_directory("/b")
    files.make_directory("/b/home work")
    before = contents(files, "/a")
    with pytest.raises(LogDirectoryError, match="home work"):
        directories(files, "/a", "/b").open()
    assert contents(files, "/a") == before
    assert [report.recovered for report in directories(files, "/a").open()] == [[]]


# Links.
def test_a_partition_behind_a_link_is_found_written_and_its_link_removed_with_it(tmp_path: Path) -> None:
    # A13
    data, elsewhere = tmp_path / "data", tmp_path / "other disk"
    closed(SystemFiles(), str(data), T)
    elsewhere.mkdir()
    (data / "t-0").rename(elsewhere / "t-0")
    (data / "t-0").symlink_to(elsewhere / "t-0")
    made = directories(SystemFiles(), str(data))
    made.open()
    log = made.logs[T]
    assert log.append_as_leader(produced(), leader_epoch=0).base_offset == 20
    made.delete(T)()
    assert not any(path.name.endswith("-delete") for path in data.iterdir())
    assert (elsewhere / "t-0").is_dir(), "what a link leads to is not ours to remove"
    assert made.close() == []


@pytest.mark.parametrize("target", ["not mounted", "t-0"])
def test_a_link_that_leads_nowhere_is_named_and_no_empty_partition_takes_its_place(tmp_path: Path, target: str) -> None:
    # A13
    (tmp_path / "t-0").symlink_to(tmp_path / target)
    with pytest.raises(LogDirectoryError, match="t-0 is a link that leads nowhere"):
        directories(SystemFiles(), str(tmp_path)).open()


def test_a_link_that_is_no_partitions_is_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "notes").symlink_to(tmp_path / "gone")
    made = directories(SystemFiles(), str(tmp_path))
    assert made.open() == []
    made.close()
