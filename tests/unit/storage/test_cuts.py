"""What is cut is kept, and nothing that was kept before is overwritten (row S16)."""

from __future__ import annotations

import pytest
from tests.unit.storage.disk import PATH, ROOT, batch_at, fail_when, listing, new_disk, open_log, path_of, put_file

from penstock.storage import cuts
from penstock.storage.inspect.places import file_place
from penstock.storage.recovery import recover_segment

GOOD = batch_at(0) + batch_at(1)


def torn(filler: bytes) -> bytes:
    return batch_at(2)[:20] + filler


def test_a_second_cut_at_the_same_place_stands_beside_the_first() -> None:
    files = new_disk()
    for number, filler in enumerate((b"first", b"second", b"third"), start=1):
        put_file(files, path_of(0), GOOD + torn(filler))
        report = recover_segment(files, PATH, 0, 100)
        name = f"{path_of(0)}.{len(GOOD)}{'' if number == 1 else f'.{number}'}.cut"
        assert report.kept_as == name.rpartition("/")[2]
        place = file_place(name)
        assert place is not None, "a dump knows the name"
        assert place.base_offset == 0
    kept = [files.read(f"{PATH}/{name}") for name in listing(files) if name.endswith(".cut")]
    assert sorted(kept) == sorted(torn(filler) for filler in (b"first", b"second", b"third"))


def test_the_same_tail_is_kept_once() -> None:
    files = new_disk()
    for _ in range(2):  # as where the first recovery ended between keeping and cutting
        put_file(files, path_of(0), GOOD + torn(b"tail"))
        report = recover_segment(files, PATH, 0, 100)
        assert report.kept_as == f"{path_of(0)}.{len(GOOD)}.cut".rpartition("/")[2]
    assert sum(name.endswith(".cut") for name in listing(files)) == 1


def test_segments_behind_a_cut_do_not_replace_those_of_an_earlier_one() -> None:
    files = new_disk()
    for filler in (b"x", b"y"):
        put_file(files, path_of(0), GOOD + torn(filler))
        put_file(files, path_of(5), batch_at(5, size=30 if filler == b"x" else 31))
        log, report = open_log(files)
        assert report.cut_segments == [5]
        assert files.read(f"{PATH}/{report.cut_names[0]}") == batch_at(5, size=30 if filler == b"x" else 31)
        log.abandon()
    assert {name for name in listing(files) if name.startswith(path_of(5).rpartition("/")[2])} >= {
        "00000000000000000005.log.cut",
        "00000000000000000005.log.2.cut",
    }


def test_a_copy_that_fails_leaves_no_half_of_itself() -> None:
    files = new_disk()
    put_file(files, path_of(0), GOOD + torn(b"tail"))
    fail_when(files, lambda what: what.startswith("write") and ".cut" in what)
    with pytest.raises(OSError, match="Input/output"):
        recover_segment(files, PATH, 0, 100)
    assert files.read(path_of(0)) == GOOD + torn(b"tail")
    assert not [name for name in listing(files) if name.endswith(".cut")]


def test_a_checkpoint_set_aside_twice_is_there_twice() -> None:
    files = new_disk()
    for text in (b"one", b"two"):
        put_file(files, f"{ROOT}/recovery-point-offset-checkpoint", text)
        cuts.set_aside(files, f"{ROOT}/recovery-point-offset-checkpoint")
    names = [name for name in files.list(ROOT) if name.endswith(".cut")]
    assert [files.read(f"{ROOT}/{name}") for name in sorted(names)] == [b"two", b"one"]
