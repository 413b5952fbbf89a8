"""The file system whose power is cut in the cluster's tests forgets what was not synced, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.synced_files import SyncedFiles, restore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").write_bytes(b"there before")
    return tmp_path / "data"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def listing(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


def test_bytes_count_from_their_sync_and_names_from_that_of_their_directory(root: Path, kept: Path) -> None:
    files = SyncedFiles(str(root), kept)
    files.make_directory(f"{root}/t-0")
    files.sync_directory(str(root))
    opened = {name: files.create(f"{root}/t-0/{name}") for name in ("synced", "empty", "removed", "nameless")}
    files.remove(f"{root}/t-0/nameless")
    for name, file in opened.items():
        file.pwrite(b"before", 0)
        if name != "empty":
            file.sync()
        file.pwrite(b" after", 6)
    files.sync_directory(f"{root}/t-0")
    files.remove(f"{root}/t-0/removed")
    files.create(f"{root}/t-0/new").sync()
    mapping = files.map(f"{root}/old", 20)
    mapping.buffer[0:5] = b"THERE"
    assert listing(root)["t-0/synced"] == b"before after"
    restore(root, kept)
    assert listing(root) == {
        "old": b"there before",
        "t-0": None,
        "t-0/empty": b"",
        "t-0/removed": b"before",
        "t-0/synced": b"before",
    }


def test_what_is_renamed_or_removed_is_so_when_its_directory_was_synced(root: Path, kept: Path) -> None:
    files = SyncedFiles(str(root), kept)
    files.make_directory(f"{root}/t-0")
    file = files.create(f"{root}/t-0/log")
    file.pwrite(b"x", 0)
    file.sync()
    files.sync_directory(f"{root}/t-0")
    files.sync_directory(str(root))
    files.rename(f"{root}/t-0", f"{root}/t-0-delete")
    files.remove(f"{root}/old")
    restore(root, kept)
    assert listing(root) == {"old": b"there before", "t-0": None, "t-0/log": b"x"}
    files = SyncedFiles(str(root), kept)
    files.rename(f"{root}/t-0", f"{root}/t-0-delete")
    files.remove(f"{root}/old")
    files.sync_directory(str(root))
    restore(root, kept)
    assert listing(root) == {"t-0-delete": None, "t-0-delete/log": b"x"}
