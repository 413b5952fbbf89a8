"""The metrics over HTTP, on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from itertools import count

import pytest

from penstock.base.metrics import Family, Kind, Sample, gauge
from penstock.server import metrics_page
from penstock.server.listener import Address
from penstock.server.metrics_page import MetricsPage

HERE = Address(name="METRICS", host="127.0.0.1", port=0)


def ask(families: Callable[[], Iterable[Family]], request: bytes) -> tuple[str, str]:
    """The status line and the body."""

    async def exchange() -> bytes:
        page = MetricsPage(families)
        port = (await page.start(HERE)).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        if not request.endswith(b"\r\n\r\n"):
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        page.stop()
        return answer

    head, _, body = asyncio.run(exchange()).decode().partition("\r\n\r\n")
    return head.split("\r\n")[0], body


def one() -> list[Family]:
    return [gauge("a", "x", lambda: 7)]


def test_the_metrics_are_at_their_path() -> None:
    status, body = ask(one, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == "HTTP/1.0 200 OK"
    assert body.endswith("a 7\n")
    assert ask(one, b"GET /metrics?name=a HTTP/1.1\r\n\r\n")[0] == "HTTP/1.0 200 OK"


def test_other_requests_are_told_so() -> None:
    assert ask(one, b"GET / HTTP/1.1\r\n\r\n")[0] == "HTTP/1.0 404 Not Found"
    assert ask(one, b"POST /metrics HTTP/1.1\r\n\r\n")[0] == "HTTP/1.0 405 Method Not Allowed"
    assert ask(one, b"GET\r\n\r\n")[0] == "HTTP/1.0 405 Method Not Allowed"


def test_what_is_no_request_is_closed_without_an_answer() -> None:
    assert ask(one, b"GET /metrics HT") == ("", "")
    assert ask(one, b"x" * 20_000) == ("", "")


@pytest.mark.parametrize("request_sent", [b"", b"GET /metrics HTTP/1.1\r\n\r\n"], ids=["says nothing", "reads nothing"])
def test_a_client_that_says_or_reads_nothing_is_shown_out(monkeypatch: pytest.MonkeyPatch, request_sent: bytes) -> None:
    # A5, A20
    for name in ("_REQUEST_SECONDS_MAX", "_ANSWER_SECONDS_MAX"):
        monkeypatch.setattr(metrics_page, name, 0.2)
    served: list[asyncio.StreamWriter] = []

    class Watched(MetricsPage):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await super()._serve(reader, writer)
            served.append(writer)
            over.set()

    def endless() -> list[Family]:
        return [Family("p", Kind.GAUGE, "x", lambda: (Sample((("n", "x" * 100),), n) for n in count()))]

    async def exchange() -> None:
        page = Watched(endless)
        port = (await page.start(HERE)).port
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(request_sent)
            await asyncio.wait_for(over.wait(), 60)
            assert served[0].transport.is_closing()
            assert served[0].transport.get_write_buffer_size() == 0
        page.stop()

    over = asyncio.Event()
    asyncio.run(exchange())


def test_many_lines_come_whole() -> None:
    def many() -> list[Family]:
        return [Family("p", Kind.GAUGE, "x", lambda: (Sample((("n", str(n)),), n) for n in range(20_000)))]

    _, body = ask(many, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert body.splitlines()[2:] == [f'p{{n="{n}"}} {n}' for n in range(20_000)]
