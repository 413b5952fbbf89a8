"""The machine's file system, and beside it a second one that has only what was synced: what a power cut would leave of the first.

The second one is a folder that survives a kill -9: a file for every file, as it was when it was last synced, and for every directory its
names, as they were when it was. `restore` makes the first one so. Bytes written while a sync is under way may count as synced.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from pathlib import Path

from penstock.base.files import File, Mapping, ReadableBuffer, SystemFiles

ROOT = 0


class _Node:
    """A file, or a directory where `names` is not None. It keeps its number whatever its name becomes."""

    __slots__ = ("names", "number")

    def __init__(self, number: int, is_directory: bool) -> None:
        self.number = number
        self.names: dict[str, _Node] | None = {} if is_directory else None


class _Tracked:
    """An open file whose syncs are noted."""

    __slots__ = ("_file", "_files", "_node")

    def __init__(self, files: SyncedFiles, file: File, node: _Node) -> None:
        self._files, self._file, self._node = files, file, node

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        return self._file.pread_nowait(length, position)

    def send_nowait(self, socket: int, length: int, position: int) -> int | None:
        return self._file.send_nowait(socket, length, position)

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        self._file.pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()
        self._files.note(self._node, self._file.pread(self._file.size(), 0))

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class _TrackedMapping:
    __slots__ = ("_files", "_mapping", "_node", "buffer")

    def __init__(self, files: SyncedFiles, mapping: Mapping, node: _Node) -> None:
        self._files, self._mapping, self._node = files, mapping, node
        self.buffer = mapping.buffer

    def sync(self) -> None:
        self._mapping.sync()
        self._files.note(self._node, bytes(self.buffer))

    def close(self) -> None:
        self._mapping.close()


class SyncedFiles(SystemFiles):
    """`root` is what the power cut hits, `kept` the folder of what was synced. What stands in `root` at the start counts as synced."""

    def __init__(self, root: str, kept: Path) -> None:
        self._top = root
        self._kept = kept
        self._numbers = itertools.count(ROOT + 1)
        self._lock = threading.RLock()
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        self._root = _Node(ROOT, is_directory=True)
        if os.path.isdir(root):
            self._adopt(root, self._root)

    def _adopt(self, path: str, node: _Node) -> None:
        assert node.names is not None
        for entry in os.scandir(path):
            child = node.names[entry.name] = _Node(next(self._numbers), entry.is_dir())
            if entry.is_dir():
                self._adopt(entry.path, child)
            else:
                self.note(child, Path(entry.path).read_bytes())
        self._note_names(node)

    def note(self, node: _Node, data: bytes) -> None:
        self._write(f"{node.number}.file", data)

    def _note_names(self, node: _Node) -> None:
        with self._lock:
            assert node.names is not None
            self._write(f"{node.number}.names", json.dumps({n: c.number for n, c in node.names.items()}).encode())

    def _write(self, name: str, data: bytes) -> None:
        with self._lock:
            fresh = self._kept / f"{name}.new"
            fresh.write_bytes(data)
            fresh.rename(self._kept / name)

    # Names.
    def _find(self, path: str) -> _Node | None:
        """None outside of what is watched."""
        if path.rstrip("/") == self._top:
            return self._root
        if not path.startswith(f"{self._top}/"):
            return None
        node: _Node | None = self._root
        for name in path[len(self._top) + 1 :].split("/"):
            node = None if node is None or node.names is None else node.names.get(name)
        return node

    def _siblings(self, path: str) -> tuple[dict[str, _Node], str]:
        parent, _, name = path.rpartition("/")
        node = self._find(parent)
        return ({} if node is None or node.names is None else node.names), name

    def _add(self, path: str, is_directory: bool) -> _Node:
        with self._lock:
            names, name = self._siblings(path)
            node = names[name] = _Node(next(self._numbers), is_directory)
            return node

    def open(self, path: str) -> File:
        return self._tracked(super().open(path))

    def open_read(self, path: str) -> File:
        return self._tracked(super().open_read(path))

    def _tracked(self, file: File) -> File:
        with self._lock:
            node = self._find(file.path)
        return file if node is None else _Tracked(self, file, node)

    def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
        file = super().create(path, preallocate_bytes=preallocate_bytes)
        return _Tracked(self, file, self._add(path, is_directory=False))

    def map(self, path: str, size: int) -> Mapping:
        is_new = not self.exists(path)
        mapping = super().map(path, size)
        with self._lock:
            node = self._add(path, is_directory=False) if is_new else self._find(path)
        assert node is not None
        return _TrackedMapping(self, mapping, node)

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        if path.rstrip("/") != self._top:
            self._note_names(self._add(path, is_directory=True))

    def remove_directory(self, path: str) -> None:
        super().remove_directory(path)
        self._forget(path)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._forget(path)

    def _forget(self, path: str) -> None:
        with self._lock:
            names, name = self._siblings(path)
            names.pop(name, None)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        with self._lock:
            names, name = self._siblings(source)
            node = names.pop(name)
            others, new_name = self._siblings(target)
            others[new_name] = node

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        with self._lock:
            node = self._find(path)
        if node is not None:
            self._note_names(node)


def restore(root: Path, kept: Path) -> None:
    """The power cut: everything that was not synced is gone."""
    shutil.rmtree(root)
    _restore(root, kept, ROOT)


def _restore(path: Path, kept: Path, number: int) -> None:
    path.mkdir()
    listed = kept / f"{number}.names"
    names: dict[str, int] = json.loads(listed.read_bytes()) if listed.exists() else {}
    for name, child in names.items():
        data = kept / f"{child}.file"
        if (kept / f"{child}.names").exists():
            _restore(path / name, kept, child)
        elif data.exists():
            (path / name).write_bytes(data.read_bytes())
        else:
            (path / name).touch()
