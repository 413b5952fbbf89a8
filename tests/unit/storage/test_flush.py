"""A flush: what it syncs, in which order, and what it may meet (row S14)."""

from __future__ import annotations

from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.disk import PATH, ROOT, marker, new_disk, open_log, path_of, produced, small_config

from penstock.storage.flush import FlushJob
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_state import Origin


def a_log(files: ForgetfulFiles) -> PartitionLog:
    log, _ = open_log(files, config=small_config(segment_bytes=200))
    for number in range(4):
        log.append_as_leader(produced(producer_id=7, sequence=number, transactional=True), leader_epoch=number)
    log.append_as_leader(marker(7, commit=False), leader_epoch=3, origin=Origin.COORDINATOR)
    return log


def steps_of(files: ForgetfulFiles, job: FlushJob) -> list[str]:
    """What the job does to the disk, in order."""
    seen: list[str] = []
    inner = files.step

    def step(what: str) -> None:
        seen.append(what.replace(PATH + "/", ""))
        inner(what)

    files.step = step  # type: ignore[method-assign]
    job.run()
    return seen


def test_every_file_of_the_unflushed_segments_is_synced_then_the_epochs_and_all_names_at_once() -> None:
    # KAFKA-3968, 9892, 16541
    files = new_disk()
    log = a_log(files)
    seen = steps_of(files, log.flush_job())
    bases = [segment.base_offset for segment in log.log.segments]
    for base in bases:
        for kind in (".log", ".index", ".timeindex"):
            assert f"sync {base:020d}{kind}" in seen
    assert any(step.endswith(".txnindex") for step in seen)
    assert [step for step in seen if step.endswith(".snapshot")] == [f"sync {base:020d}.snapshot" for base in bases[1:]]
    epochs = seen.index("create leader-epoch-checkpoint.tmp")
    assert max(seen.index(step) for step in seen if step.startswith("sync 0")) < epochs
    assert seen.index(f"sync directory {PATH}") == len(seen) - 1, "once, when every name is there"


def test_the_name_of_a_first_segment_is_synced_with_it_and_once() -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append_as_leader(produced(), leader_epoch=0)
    log.leader_epochs.take_dirty()  # writing them would sync the names too
    job = log.flush_job()
    assert job.snapshots == []
    assert f"sync directory {PATH}" in steps_of(files, job)
    assert log.flushed(job)
    log.append_as_leader(produced(), leader_epoch=0)
    assert f"sync directory {PATH}" not in steps_of(files, log.flush_job())


def test_the_segments_below_the_recovery_point_are_left_alone() -> None:
    files = new_disk()
    log = a_log(files)
    log.flush()
    first = log.log.segments[0].base_offset
    log.append_as_leader(produced(), leader_epoch=3)
    seen = steps_of(files, log.flush_job())
    assert f"sync {first:020d}.log" not in seen
    assert f"sync {log.log.active.base_offset:020d}.log" in seen
    assert not any("leader-epoch" in step for step in seen), "epochs that did not change are not written again"


def test_files_that_went_away_meanwhile_need_no_sync() -> None:
    # KAFKA-15391, 15572
    files = new_disk()
    log = a_log(files)
    job = log.flush_job()
    base = log.log.segments[1].base_offset
    files.remove(path_of(base))
    files.remove(path_of(base, ".snapshot"))
    job.run()


def test_a_directory_that_was_renamed_meanwhile_needs_no_sync() -> None:
    # KAFKA-15391
    files = new_disk()
    log = a_log(files)
    job = log.flush_job()
    files.rename(PATH, f"{ROOT}/t-0.0123456789abcdef0123456789abcdef-delete")
    job.run()
    assert not files.exists(PATH), "and is not made again"
