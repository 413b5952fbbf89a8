"""The files port: the only place that touches the disk.

What it promises, and what a crash leaves: bytes written are on disk only after `sync`; a name created, renamed or
removed is on disk only after `sync_directory` of its parent. The twin in the tests forgets exactly what this does not
promise. Every failure of the disk surfaces as `OSError`; callers above decide what it means.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from typing import Protocol

from penstock.base.errors import DirectoryLockedError

ReadableBuffer = bytes | bytearray | memoryview | mmap.mmap
WritableBuffer = bytearray | memoryview | mmap.mmap


class File(Protocol):
    """An open file. Positions are explicit: nothing here has a cursor."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes at `position`; fewer only at the end of the file."""

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        """The same without waiting for the disk; None where that cannot be promised: then `pread`, on a thread."""

    def send_nowait(self, socket: int, length: int, position: int) -> int | None:
        """Bytes sent to a socket that does not wait, at most `length`, without being copied here; None as `pread_nowait`."""

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """All of `data` at `position`, or OSError; after an error the file's tail is unknown."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when the file's bytes and size are on disk. Slow: never on an event loop."""

    def fileno(self) -> int:
        """Its descriptor; owned by this object."""

    def close(self) -> None: ...


class Mapping(Protocol):
    """A file mapped into memory, of a fixed size. Writes to `buffer` are writes to the file."""

    @property
    def buffer(self) -> mmap.mmap | bytearray: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are plain strings, joined with '/'."""

    def open(self, path: str) -> File:
        """For reading and writing; the file must exist."""

    def open_read(self, path: str) -> File: ...

    def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
        """A new file; FileExistsError where there is one."""

    def map(self, path: str, size: int) -> Mapping:
        """Maps the whole file, made or grown to `size` first. `size` is at least 1."""

    def reserve(self, path: str, position: int, length: int) -> None:
        """Gives these bytes of a file room on disk, or OSError: a page of a map without room is a SIGBUS when written."""

    def read(self, path: str) -> bytes: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, wall_ms: int) -> None: ...

    def truncate(self, path: str, size: int) -> None: ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands there, or a link leads to one."""

    def is_link(self, path: str) -> bool:
        """Whether the name itself is a symbolic link, wherever it leads."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directory(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces an existing target file."""

    def remove(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Kafka's way of keeping two processes apart; DirectoryLockedError where another holds it."""


_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_PROBE_BYTES = 64 * 1024


class _SystemFile:
    __slots__ = ("_can_ask", "_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._can_ask = _NOWAIT != 0

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pread(self, length: int, position: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length:
            data = os.pread(self._descriptor, length - have, position + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        if not self._can_ask or length <= 0:
            return None
        try:
            if length <= _PROBE_BYTES:
                buffer = bytearray(length)
                return buffer if os.preadv(self._descriptor, [buffer], position, _NOWAIT) == length else None
        except OSError as error:
            self._forgive(error)
            return None
        # Much faster than reading into a buffer that must be cleared first.
        return self.pread(length, position) if self._is_in_memory(length, position) else None

    def send_nowait(self, socket: int, length: int, position: int) -> int | None:
        if not self._is_in_memory(length, position):
            return None
        try:
            return os.sendfile(socket, self._descriptor, position, length)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                raise
            return None  # whatever this file system or sandbox has against it, it may be read

    def _is_in_memory(self, length: int, position: int) -> bool:
        """A byte of each stretch is asked for."""
        if not self._can_ask or length <= 0:
            return False
        byte = bytearray(1)
        try:
            for probe in (*range(position, position + length, _PROBE_BYTES), position + length - 1):
                if os.preadv(self._descriptor, [byte], probe, _NOWAIT) == 0:
                    return False
        except OSError as error:
            self._forgive(error)
            return False
        return True

    def _forgive(self, error: OSError) -> None:
        """What is not in memory, and file systems that cannot say; any other error is one."""
        if isinstance(error, BlockingIOError):
            return
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise error
        self._can_ask = False

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        length = len(data)
        try:
            written = os.pwrite(self._descriptor, data, position)
            while written < length:
                with memoryview(data) as view:
                    more = os.pwrite(self._descriptor, view[written:], position + written)
                if more == 0:
                    raise OSError(errno.ENOSPC, "nothing was written")
                written += more
        except OSError as error:
            error.filename = self.path  # a descriptor has no name to complain of
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            error.filename = self.path
            raise

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class _SystemMapping:
    __slots__ = ("buffer",)

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer

    def sync(self) -> None:
        self.buffer.flush()

    def close(self) -> None:
        self.buffer.close()


# lockf locks belong to the process and vanish when *any* descriptor of the file is closed, so a path is opened once.
_held_locks: set[str] = set()


class _SystemLock:
    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            _held_locks.discard(os.path.realpath(self._path))
            os.close(self._descriptor)
            self._descriptor = -1


class SystemFiles:
    """The machine's file system."""

    def open(self, path: str) -> File:
        return _SystemFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def open_read(self, path: str) -> File:
        return _SystemFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def create(self, path: str, *, preallocate_bytes: int = 0) -> File:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        if preallocate_bytes:
            os.ftruncate(descriptor, preallocate_bytes)
        return _SystemFile(path, descriptor)

    def map(self, path: str, size: int) -> Mapping:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
            return _SystemMapping(mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)

    def reserve(self, path: str, position: int, length: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, position, length)
            else:  # macOS: nothing but zeroes stands there yet
                os.pwrite(descriptor, bytes(length), position)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        os.utime(path, ns=(wall_ms * 1_000_000, wall_ms * 1_000_000))

    def truncate(self, path: str, size: int) -> None:
        os.truncate(path, size)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.mkdir(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        real_path = os.path.realpath(path)
        refusal = DirectoryLockedError(
            f"{os.path.dirname(path)} is in use by another process (it holds {os.path.basename(path)}); stop it first"
        )
        if real_path in _held_locks:
            raise refusal
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise refusal from error
            raise
        _held_locks.add(real_path)
        return _SystemLock(path, descriptor)
