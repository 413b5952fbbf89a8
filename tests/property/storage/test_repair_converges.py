"""Whatever was done to a directory, a repair mends it once: the next one finds nothing more to do, and no data is gone."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import example, given
from tests.support.forgetful_files import ForgetfulFiles
from tests.unit.storage.inspection import NOW_MS, make_directory

from penstock.base.clock import ManualClock
from penstock.storage import names
from penstock.storage.inspect.mend import Mender
from penstock.storage.inspect.places import DirectoryPlace, find_place
from penstock.storage.inspect.problems import Cure, Problem

HOME = "/logs"


@cache
def good_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        root = make_directory(Path(folder) / "logs")
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def disk_of(contents: dict[str, bytes]) -> ForgetfulFiles:
    files = ForgetfulFiles()
    for directory in ["", *sorted({path.partition("/")[0] for path in contents if "/" in path})]:
        files.make_directory(f"{HOME}/{directory}".rstrip("/"))
    for path, data in contents.items():
        file = files.create(f"{HOME}/{path}")
        if data:
            file.pwrite(data, 0)
    return files


def damage(contents: dict[str, bytes], seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(sorted(contents))
        data = bytearray(contents[path])
        how = chance.choice(("flip", "flip", "shorten", "lengthen", "empty", "remove", "noise", "mistake", "rename"))
        if how == "flip" and data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif how == "shorten":
            del data[chance.randrange(len(data) + 1) :]
        elif how == "lengthen":
            data += chance.choice((bytes(100), chance.randbytes(50), data[-40:]))
        elif how == "empty":
            data.clear()
        elif how == "noise":
            data[:] = chance.randbytes(len(data))
        elif how == "mistake":  # another file of the directory under this name
            data[:] = contents[chance.choice(sorted(contents))]
        contents[path] = bytes(data)
        if how in ("remove", "rename"):
            del contents[path]
        if how == "rename" and names.parse_segment_file(path.rpartition("/")[2]):
            contents[path + chance.choice((names.DELETED, names.CLEANED, names.SWAP))] = bytes(data)


def mend(files: ForgetfulFiles, *, force: bool) -> tuple[list[Problem], list[str]]:
    said: list[str] = []
    place = find_place(files, HOME)
    assert isinstance(place, DirectoryPlace)
    mender = Mender(files, ManualClock(NOW_MS), HOME, lambda path, action: said.append(f"{path}: {action}"), force)
    return mender.mend(place), said


def kept_of(files: ForgetfulFiles, path: str) -> list[bytes]:
    """What is still there of a log: as it is, with its tail that was cut, or set aside whole."""
    directory, _, name = f"{HOME}/{path}".rpartition("/")
    whole = files.read(f"{HOME}/{path}") if files.exists(f"{HOME}/{path}") else b""
    found = [other for other in files.list(directory) if other.startswith(name + ".") and other.endswith(names.CUT)]
    aside = [files.read(f"{directory}/{other}") for other in found]
    return [whole, *aside, *(whole + data for data in aside)]


@example(32871442, False)  # a whole snapshot of another log stands in this one, between two segments
@example(542181, False)  # the checkpoint of log starts names another's offsets, and a tail is torn
@given(st.integers(0, 2**32), st.booleans())
def test_a_second_repair_finds_nothing_more_to_mend(seed: int, force: bool) -> None:
    contents = dict(good_files())
    damage(contents, seed)
    files = disk_of(contents)
    before = {path: data for path, data in contents.items() if path.endswith(names.LOG)}
    left, said = mend(files, force=force)
    again, said_again = mend(files, force=force)
    assert said_again == [], (seed, said)
    assert again == left
    if force:
        assert not [problem for problem in left if problem.cure is not Cure.NONE], (seed, left)
    if not any(path.endswith(names.SWAP) for path in contents):  # a swap takes the place of others, lawfully
        for path, data in before.items():
            assert data.rstrip(b"\0") in [kept.rstrip(b"\0") for kept in kept_of(files, path)], (seed, path)
