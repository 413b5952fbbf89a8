"""Reading without waiting gives the same bytes, or nothing."""

from __future__ import annotations

import errno
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.base.files import SystemFiles

SIZES = [1, 65_535, 65_536, 65_537, 1 << 20]


@pytest.mark.parametrize("size", SIZES)
def test_what_was_just_written_is_read_without_waiting_if_the_platform_can_tell(tmp_path: Path, size: int) -> None:
    data = os.urandom(size + 10)
    (tmp_path / "f").write_bytes(data)
    file = SystemFiles().open_read(str(tmp_path / "f"))
    found = file.pread_nowait(size, 7)
    assert found is None or bytes(found) == data[7 : 7 + size]
    assert file.pread(size, 7) == data[7 : 7 + size]


@pytest.mark.parametrize("size", SIZES)
def test_past_the_end_is_nothing(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(bytes(size))
    assert SystemFiles().open_read(str(tmp_path / "f")).pread_nowait(size + 1, 0) is None


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the platform cannot read without waiting")
@pytest.mark.parametrize("size", SIZES)
def test_a_disk_that_would_be_waited_for_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "f").write_bytes(bytes(size))
    file = SystemFiles().open_read(str(tmp_path / "f"))

    def would_wait(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "would wait")

    monkeypatch.setattr(os, "preadv", would_wait)
    assert file.pread_nowait(size, 0) is None


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the platform cannot read without waiting")
def test_a_file_system_that_cannot_tell_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = SystemFiles().open_read(str(tmp_path / "f"))
    asked: list[int] = []

    def cannot(*_: Any) -> int:
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", cannot)
    assert [file.pread_nowait(3, 0) for _ in range(2)] == [None, None]
    assert len(asked) == 1


def test_a_write_that_fails_names_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "a file")
    file = SystemFiles().create(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # as a disk that is full behind these bytes
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            file.pwrite(bytes(8192), 0)
        with pytest.raises(OSError, match="File too large") as refused:
            SystemFiles().reserve(path, 4096, 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (failed.value.filename, refused.value.filename) == (path, path)
    file.close()
    with pytest.raises(OSError, match="/dev/null"):
        SystemFiles().open("/dev/null").sync()


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the platform cannot read without waiting")
def test_a_file_is_sent_as_far_as_the_socket_has_room(tmp_path: Path) -> None:
    data = os.urandom(4 << 20)
    (tmp_path / "f").write_bytes(data)
    file = SystemFiles().open_read(str(tmp_path / "f"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sent = file.send_nowait(ours.fileno(), len(data) - 7, 7)
        assert sent is not None
        assert 0 < sent < len(data)
        assert file.send_nowait(ours.fileno(), 10, 7 + sent) == 0
        assert theirs.recv(sent, socket.MSG_WAITALL) == data[7 : 7 + sent]
        assert file.send_nowait(ours.fileno(), 1, len(data)) is None, "there is nothing"
        theirs.close()
        with pytest.raises(BrokenPipeError):
            file.send_nowait(ours.fileno(), 10, 0)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the platform cannot read without waiting")
def test_what_the_disk_would_be_waited_for_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = SystemFiles().open_read(str(tmp_path / "f"))

    def would_wait(*_: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "would wait")

    monkeypatch.setattr(os, "preadv", would_wait)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.send_nowait(ours.fileno(), 3, 0) is None
