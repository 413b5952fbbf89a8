"""A file system in memory that forgets what was not synced: the twin of `base.files.SystemFiles`.

What it keeps at a power cut: of each file the bytes of its last `sync`, plus a prefix of the writes since, the last of them
torn; of a mapped file any mixture of old and new pages; of names a prefix of what happened since the directory was synced
(file systems journal names in order). `kill` is gentler: the page cache survives, only the process is gone.
`fail_at` cuts the process at its n-th change, before it happens; what lies in a `broken` directory cannot be read or written.
"""

from __future__ import annotations

import errno
import random
from typing import NamedTuple

from penstock.base.errors import DirectoryLockedError
from penstock.base.files import File, Lock, Mapping, ReadableBuffer

PAGE_BYTES = 4096


class Cut(BaseException):
    """The process ends here. Not an Exception: nothing may catch it."""


class _Write(NamedTuple):
    position: int
    data: bytes


class _Truncate(NamedTuple):
    size: int


class _Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.pending: list[_Write | _Truncate] = []
        self.mapped = False
        self.modified_ms = 0

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.pending.clear()


class _Name(NamedTuple):
    """A name that was made, removed or (with a `target`) changed."""

    path: str
    inode: _Inode | None = None
    is_made: bool = False
    target: str = ""

    @property
    def directory(self) -> str:
        return _parent(self.path)

    def apply(self, names: dict[str, _Inode | None]) -> None:
        if self.target:
            _rename(names, self.path, self.target)
        elif self.is_made:
            names[self.path] = self.inode
        else:
            names.pop(self.path, None)

    def moved(self, source: str, target: str) -> _Name:
        """The same, where its directory has another name by now."""
        if not self.path.startswith(f"{source}/"):
            return self
        path, further = target + self.path[len(source) :], self.target and target + self.target[len(source) :]
        return self._replace(path=path, target=further)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class _MemoryFile:
    def __init__(self, files: ForgetfulFiles, path: str, inode: _Inode) -> None:
        self._files = files
        self.path = path
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, length: int, position: int) -> bytes:
        self._files.check(self.path)
        return bytes(self._inode.data[position : position + length])

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        return None if self._files.is_cold else self.pread(length, position)

    def send_nowait(self, socket: int, length: int, position: int) -> int | None:
        return None

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        self._files.step(f"write {self.path}")
        if self._files.is_broken(self.path):
            data = bytes(data)[: len(data) // 2]  # what came before the disk broke
        self._files.check_space(len(data))
        _apply(self._inode.data, _Write(position, bytes(data)))
        self._inode.pending.append(_Write(position, bytes(data)))
        self._files.check(self.path)

    def truncate(self, size: int) -> None:
        self._files.step(f"truncate {self.path}")
        self._files.check(self.path)
        _apply(self._inode.data, _Truncate(size))
        self._inode.pending.append(_Truncate(size))

    def sync(self) -> None:
        self._files.step(f"sync {self.path}")
        self._files.check(self.path)
        self._inode.sync()

    def fileno(self) -> int:
        raise AssertionError("a file in memory has no descriptor")

    def close(self) -> None:
        pass


class _MemoryMapping:
    def __init__(self, files: ForgetfulFiles, path: str, inode: _Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self.buffer = inode.data

    def sync(self) -> None:
        self._files.step("sync mapping")
        self._files.check(self._path)
        self._inode.sync()

    def close(self) -> None:
        pass


class _MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


def _apply(data: bytearray, change: _Write | _Truncate) -> None:
    if isinstance(change, _Truncate):
        if change.size < len(data):
            del data[change.size :]
        else:
            data.extend(bytes(change.size - len(data)))
        return
    end = change.position + len(change.data)
    if end > len(data):
        data.extend(bytes(end - len(data)))
    data[change.position : end] = change.data


class ForgetfulFiles:
    def __init__(self) -> None:
        self._live: dict[str, _Inode | None] = {"": None}  # None: a directory
        self._durable: dict[str, _Inode | None] = {"": None}
        self._pending: list[_Name] = []
        self._locks: set[str] = set()
        self.steps = 0
        self.fail_at: int | None = None
        self.last_step = ""
        self.space_left: int | None = None
        self.now_ms = 1_700_000_000_000
        self.is_cold = False
        """Whether every read would wait for the disk."""
        self.broken: set[str] = set()
        """Directories whose disk answers nothing but errors."""

    # Faults.
    def step(self, what: str) -> None:
        """Counts a change to the disk; the process is cut before the one numbered `fail_at`."""
        if self.fail_at is not None and self.steps >= self.fail_at:
            self.last_step = what
            raise Cut(what)
        self.steps += 1

    def is_broken(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self.broken)

    def check(self, path: str) -> None:
        if self.is_broken(path):
            raise OSError(errno.EIO, "Input/output error", path)

    def check_space(self, length: int) -> None:
        if self.space_left is not None:
            if length > self.space_left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.space_left -= length

    def kill(self) -> None:
        """The process is gone, the machine goes on: everything written is there."""
        self._locks.clear()
        self.fail_at = None

    def power_cut(self, choice: random.Random) -> None:
        """The machine is gone: what was not synced survives in part, by chance."""
        keep = choice.randint(0, len(self._pending))
        for name in self._pending[:keep]:
            name.apply(self._durable)
        self._pending.clear()
        for inode in {id(inode): inode for inode in self._durable.values() if inode is not None}.values():
            inode.data = _survivor(inode, choice)
            inode.sync()
        self._live = dict(self._durable)
        self._locks.clear()
        self.fail_at = None

    def lose_unsynced(self, directory: str, choice: random.Random) -> None:
        """The machine goes on, and what was not synced in this directory survives in part: a sync that failed has thrown it away."""
        for path, inode in self._live.items():
            if inode is not None and path.startswith(f"{directory}/"):
                inode.data = _survivor(inode, choice)
                inode.sync()

    def forget_everything_unsynced(self) -> None:
        """The strictest power cut: only what was synced."""
        self._pending.clear()
        for inode in self._durable.values():
            if inode is not None:
                inode.data = bytearray(inode.durable)
                inode.pending.clear()
        self._live = dict(self._durable)
        self._locks.clear()
        self.fail_at = None

    def write_back(self) -> None:
        """The kernel writes everything to the disk by itself, as it does every few seconds."""
        for name in self._pending:
            name.apply(self._durable)
        self._pending.clear()
        for inode in self._durable.values():
            if inode is not None:
                inode.sync()

    # Names.
    def _change(self, name: _Name) -> None:
        name.apply(self._live)
        self._pending.append(name)

    def _inode(self, path: str) -> _Inode:
        self.check(path)
        inode = self._live.get(path)
        if inode is None:
            code = errno.EISDIR if path in self._live else errno.ENOENT
            raise OSError(code, "no such file", path)
        return inode

    def open(self, path: str) -> File:
        return _MemoryFile(self, path, self._inode(path))

    open_read = open

    def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
        self.check(path)
        if path in self._live:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        if _parent(path) not in self._live:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.step(f"create {path}")
        inode = _Inode()
        inode.modified_ms = self.now_ms
        self._change(_Name(path, inode, is_made=True))
        if preallocate_bytes:
            _apply(inode.data, _Truncate(preallocate_bytes))
            inode.pending.append(_Truncate(preallocate_bytes))
        return _MemoryFile(self, path, inode)

    def map(self, path: str, size: int) -> Mapping:
        if path not in self._live:
            self.create(path)
        inode = self._inode(path)
        if len(inode.data) < size:
            self.step(f"grow {path}")
            _apply(inode.data, _Truncate(size))
            inode.pending.append(_Truncate(size))
        inode.mapped = True
        return _MemoryMapping(self, path, inode)

    def reserve(self, path: str, position: int, length: int) -> None:
        if self.space_left is not None and length > self.space_left:
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        self._inode(path).modified_ms = wall_ms

    def truncate(self, path: str, size: int) -> None:
        self.open(path).truncate(size)

    def exists(self, path: str) -> bool:
        return path in self._live

    def is_directory(self, path: str) -> bool:
        return path in self._live and self._live[path] is None

    def is_link(self, path: str) -> bool:
        return False

    def list(self, path: str) -> list[str]:
        self.check(path)
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return sorted(name.rpartition("/")[2] for name in self._live if name and _parent(name) == path)

    def make_directory(self, path: str) -> None:
        self.check(path)
        if path in self._live:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self.step(f"mkdir {path}")
        self._change(_Name(path, None, is_made=True))

    def remove_directory(self, path: str) -> None:
        self.check(path)
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.step(f"rmdir {path}")
        self._change(_Name(path))

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        if source not in self._live:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.step(f"rename {source} {target}")
        self._change(_Name(source, target=target))

    def remove(self, path: str) -> None:
        self._inode(path)
        self.step(f"remove {path}")
        self._change(_Name(path))

    def sync_directory(self, path: str) -> None:
        self.check(path)
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.step(f"sync directory {path}")
        pending: list[_Name] = []
        for name in self._pending:
            if name.directory != path:
                pending.append(name)
                continue
            name.apply(self._durable)
            if name.target:  # what happened in a directory before its name changed happened in it still
                pending = [one.moved(name.path, name.target) for one in pending]
        self._pending = pending

    def lock(self, path: str) -> Lock:
        self.check(path)
        if path in self._locks:
            raise DirectoryLockedError(f"{_parent(path)} is in use by another process")
        if path not in self._live:
            self.create(path)
        self._locks.add(path)
        return _MemoryLock(self._locks, path)


def _rename(names: dict[str, _Inode | None], source: str, target: str) -> None:
    if source not in names:
        return
    names[target] = names.pop(source)
    for name in [found for found in names if found.startswith(source + "/")]:
        names[target + name[len(source) :]] = names.pop(name)


def _survivor(inode: _Inode, choice: random.Random) -> bytearray:
    """What the disk holds of a file after the power went."""
    if inode.mapped:
        return _mixed_pages(inode, choice)
    data = bytearray(inode.durable)
    keep = choice.randint(0, len(inode.pending))
    for change in inode.pending[:keep]:
        _apply(data, change)
    if keep < len(inode.pending):
        torn = inode.pending[keep]
        if isinstance(torn, _Write) and choice.random() < 0.7:
            length = choice.choice((choice.randint(0, len(torn.data)), len(torn.data) // 512 * 512))
            _apply(data, _Write(torn.position, torn.data[:length]))
            if choice.random() < 0.3:  # the size reached the disk, the bytes did not
                _apply(data, _Write(torn.position + length, bytes(len(torn.data) - length)))
    return data


def _mixed_pages(inode: _Inode, choice: random.Random) -> bytearray:
    size = choice.choice((len(inode.durable), len(inode.data)))
    data = bytearray(size)
    for start in range(0, size, PAGE_BYTES):
        source = choice.choice((inode.durable, bytes(inode.data)))
        page = source[start : start + PAGE_BYTES][: size - start]
        data[start : start + len(page)] = page
    return data
