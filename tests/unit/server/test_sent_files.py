"""Slices of files over a real socket and uvloop: whole, in order, by the kernel, and to nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.unit.server.test_connection import frame

from penstock.base.files import File, SystemFiles
from penstock.handlers.api import Pending
from penstock.server.connection import SENT_FROM_FILE_BYTES, Connection
from penstock.server.dispatch import Waiting
from penstock.server.turn import Turn

MEGABYTE = 1 << 20


class Slice:
    def __init__(self, file: File | Watched, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length


class Watched:
    """A file that notes how its bytes went out, and is in memory only if a test wants that."""

    def __init__(self, path: Path) -> None:
        self._file = SystemFiles().open_read(str(path))
        self.by_kernel = self.read = 0
        self.is_cold = False

    def send_nowait(self, socket: int, length: int, position: int) -> int | None:
        sent = None if self.is_cold else self._file.send_nowait(socket, length, position)
        self.by_kernel += sent or 0
        return sent

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        return None if self.is_cold else self.pread(length, position)

    def pread(self, length: int, position: int) -> bytes:
        data = self._file.pread(length, position)
        self.read += len(data)
        return data


class Served:
    """One connection; its requests are answered with `answers`, a list of parts each, in turn."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.closed = asyncio.Event()
        self.client: socket.socket
        self._asked: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def asked(self) -> Connection:
        """When its request was taken."""
        return await self._asked

    def make(self) -> Connection:
        loop = asyncio.get_running_loop()

        def run_in_thread(job: Callable[[], bytes], done: Callable[[bytes | BaseException], object]) -> None:
            loop.run_in_executor(None, job).add_done_callback(lambda ran: done(ran.exception() or ran.result()))

        def answer(_frame: object, _peer: object) -> Any:
            if not self._asked.done():
                self._asked.set_result(made)
            return self.answers.pop(0)

        made = Connection(
            answer,
            listener="PLAINTEXT",
            frame_bytes_max=1000,
            room=memoryview(bytearray(1000)),
            opened=lambda _: True,
            closed=lambda _: self.closed.set(),
            turn=Turn(),
            run_in_thread=run_in_thread,
        )
        return made


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, bytes]:
    data = os.urandom(20 * MEGABYTE)
    (tmp_path / "log").write_bytes(data)
    return tmp_path / "log", data


def talk(answers: list[Any], client: Callable[[asyncio.StreamReader, Served], Any], requests: int = 1) -> Any:
    """A client that sends its requests at once and reads little at a time."""

    async def main() -> Any:
        served = Served(answers)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(served.make, "127.0.0.1", 0)
        served.client = socket.create_connection(server.sockets[0].getsockname())
        reader, writer = await asyncio.open_connection(sock=served.client, limit=4096)
        try:
            writer.write(frame(b"request") * requests)
            return await client(reader, served)
        finally:
            server.close()
            writer.close()
            await asyncio.wait_for(served.closed.wait(), 20)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("is_cold", [False, True])
def test_slices_arrive_whole_and_in_order_whatever_the_reader_takes_at_a_time(
    log: tuple[Path, bytes], is_cold: bool
) -> None:
    path, data = log
    file = Watched(path)
    file.is_cold = is_cold
    small = SENT_FROM_FILE_BYTES - 1
    answers: list[list[Any]] = [
        [b"head", Slice(file, 5, 12 * MEGABYTE), b"tail"],
        [Slice(file, 0, small), Slice(file, 7, 3 * MEGABYTE)],
        [b"x" * 100_000, Slice(file, MEGABYTE, SENT_FROM_FILE_BYTES), b"end"],
    ]
    wanted = b"".join(
        [
            *(b"head", data[5 : 5 + 12 * MEGABYTE], b"tail"),
            *(data[:small], data[7 : 7 + 3 * MEGABYTE]),
            *(b"x" * 100_000, data[MEGABYTE : MEGABYTE + SENT_FROM_FILE_BYTES], b"end"),
        ]
    )

    async def read(reader: asyncio.StreamReader, _: Served) -> bytes:
        return await reader.readexactly(len(wanted))

    assert talk(answers, read, requests=3) == wanted
    assert file.by_kernel + file.read == 15 * MEGABYTE + small + SENT_FROM_FILE_BYTES
    if is_cold:
        assert file.by_kernel == 0
    else:
        assert file.by_kernel > file.read, "a slow reader is served by the kernel too"


def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(log: tuple[Path, bytes]) -> None:
    path, data = log
    answers: list[list[Any]] = [[Slice(SystemFiles().open_read(str(path)), 0, len(data))]]

    async def read(reader: asyncio.StreamReader, served: Served) -> bytes:
        first = await reader.readexactly(1000)
        os.truncate(path, 18 * MEGABYTE)
        return first + await reader.read(-1)

    got = talk(answers, read)
    assert len(got) <= 18 * MEGABYTE
    assert got == data[: len(got)]


def test_a_client_that_goes_in_the_middle_leaves_no_descriptor_behind(log: tuple[Path, bytes]) -> None:
    path, data = log
    file = Watched(path)
    answers: list[list[Any]] = [[Slice(file, 0, len(data))]]

    async def read(reader: asyncio.StreamReader, _: Served) -> None:
        await reader.readexactly(1000)

    before = len(os.listdir("/dev/fd"))
    talk(answers, read)
    assert 0 < file.by_kernel < len(data)
    assert len(os.listdir("/dev/fd")) <= before


def test_a_client_that_closed_its_end_gets_no_slice_without_its_head(log: tuple[Path, bytes]) -> None:
    path, _ = log
    file = Watched(path)
    pending: Pending[list[Any]] = Pending()
    answers: list[Any] = [Waiting(pending, lambda parts: parts)]

    async def read(reader: asyncio.StreamReader, served: Served) -> bytes:
        connection = await served.asked()
        # In the very turn in which its end is heard of, before the loop says that the connection is lost.
        heard = connection.eof_received

        def eof_received() -> bool:
            asyncio.get_running_loop().call_soon(pending.resolve, [b"head", Slice(file, 0, MEGABYTE)])
            return heard()

        connection.eof_received = eof_received  # type: ignore[method-assign]
        served.client.shutdown(socket.SHUT_WR)
        return await reader.read(-1)

    assert talk(answers, read) == b""
    assert (file.by_kernel, file.read) == (0, MEGABYTE)


def test_a_connection_keeps_no_descriptor_when_its_slices_are_sent(log: tuple[Path, bytes]) -> None:
    path, data = log

    async def read(reader: asyncio.StreamReader, served: Served) -> tuple[bytes, int | None, int | None]:
        connection = await served.asked()
        while_sending = connection._descriptor
        said = await reader.readexactly(12 * MEGABYTE)
        return said, while_sending, connection._descriptor

    said, while_sending, afterwards = talk([[Slice(Watched(path), 0, 12 * MEGABYTE)]], read)
    assert said == data[: 12 * MEGABYTE]
    assert while_sending is not None
    assert afterwards is None
