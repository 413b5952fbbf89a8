"""The same steps on a broker with little in it and on one with much: what grows with the number of things shows here.

Measured is the loop thread's own time on a processor (`/proc/PID/task/PID/schedstat`), a step at a time over one connection.
"""

from __future__ import annotations

import io
import os
import re
import socket
import statistics
import struct
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kio.index import load_request_schema
from kio.serial import entity_writer
from tests.support.wire import Wire, build, header

from benchmarks import load
from benchmarks.peers import Penstock, bootstrap
from benchmarks.table import Figure
from penstock.records.build import build_batch

STEPS, ROUNDS = 1500, 5
WAIT_MS = 3_600_000
TURN_MS = 10.0


class Size(NamedTuple):
    topics: int
    partitions_a_topic: int
    groups: int
    connections: int
    waits_a_connection: int


SMALL = Size(2, 10, 5, 10, 1)
LARGE = Size(20, 100, 500, 1000, 100)


def frame(key: int, version: int, values: dict[str, Any]) -> bytes:
    schema = load_request_schema(key, version)
    body = io.BytesIO()
    entity_writer(schema)(body, build(schema, values))
    content = header(key, version, schema) + body.getvalue()
    return struct.pack(">i", len(content)) + content


class Crowd:
    """A broker filled to a size, for as long as it is entered."""

    def __init__(self, folder: Path, size: Size) -> None:
        self._folder = folder
        self._size = size
        self._stack = ExitStack()
        self.peer = Penstock(folder, group_initial_rebalance_delay_ms=0)

    def __enter__(self) -> Crowd:
        self._stack.enter_context(self.peer)
        self._wire = Wire(bootstrap(self.peer))
        size = self._size
        self._create("quiet", 1)
        for number in range(size.topics):
            self._create(f"t{number}", size.partitions_a_topic)
        for number in range(size.groups):
            self._join(f"g{number}")
        for number in range(size.connections):
            self._wait(number)
        self._connection = self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _create(self, topic: str, partitions: int) -> None:
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        made = self._wire.ask(19, 7, {"topics": [wanted], "timeout": 60_000})
        assert made["topics"][0]["error_code"] == "none", made

    def _join(self, group: str) -> tuple[str, int]:
        """A member that stays: its session outlives the bench."""
        while (
            self._wire.ask(10, 4, {"key_type": 0, "coordinator_keys": [group]})["coordinators"][0]["error_code"]
            != "none"
        ):
            time.sleep(0.05)
        protocols = [{"name": "range", "metadata": b""}]
        values: dict[str, Any] = {
            "group_id": group,
            "session_timeout": 600_000,
            "rebalance_timeout": 600_000,
            "protocol_type": "consumer",
            "protocols": protocols,
            "member_id": "",
        }
        values["member_id"] = self._wire.ask(11, 5, values)["member_id"]
        joined = self._wire.ask(11, 5, values)
        member, generation = joined["member_id"], joined["generation_id"]
        share = [{"member_id": member, "assignment": b"x"}]
        self._wire.ask(
            14, 3, {"group_id": group, "generation_id": generation, "member_id": member, "assignments": share}
        )
        self._member = group, member, generation
        return member, generation

    def _connect(self) -> socket.socket:
        connection = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.peer.port), timeout=60))
        connection.settimeout(None)  # with one, MSG_WAITALL does not wait for all
        return connection

    def _wait(self, number: int) -> None:
        """Fetches of empty partitions, one behind the other: each of them waits."""
        size, connection = self._size, self._connect()
        asked = b""
        for one in range(size.waits_a_connection):
            place = number * size.waits_a_connection + one
            topic, partition = place % size.topics, place // size.topics % size.partitions_a_topic
            asked += self._fetch(f"t{topic}", partition, WAIT_MS)
        connection.sendall(asked)

    @cache  # noqa: B019 (a crowd lives as long as the bench)
    def _fetch(self, topic: str, partition: int, wait_ms: int) -> bytes:
        place = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        return frame(
            1,
            12,
            {
                "replica_id": -1,
                "max_wait": wait_ms,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [place]}],
                "rack_id": "",
            },
        )

    def steps(self) -> dict[str, bytes]:
        group, member, generation = self._member
        batch = build_batch([(int(time.time() * 1000), None, os.urandom(100), [])])
        entry = {"index": 0, "records": batch}
        produce = {"acks": 1, "timeout": 30_000, "topic_data": [{"name": "quiet", "partition_data": [entry]}]}
        position = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        stamp = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        return {
            "Produce": frame(0, 9, produce),
            "Fetch": self._fetch("quiet", 0, 0),
            "ListOffsets": frame(2, 7, {"replica_id": -1, "topics": [{"name": "quiet", "partitions": [stamp]}]}),
            "Metadata of a topic": frame(3, 12, {"topics": [{"name": "quiet"}]}),
            "Heartbeat": frame(12, 4, {"group_id": group, "generation_id": generation, "member_id": member}),
            "OffsetCommit": frame(
                8,
                8,
                {
                    "group_id": "alone",
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "topics": [{"name": "quiet", "partitions": [position]}],
                },
            ),
        }

    def on_processor_us(self) -> float:
        return int(Path(f"/proc/{self.peer.pid}/task/{self.peer.pid}/schedstat").read_text().split()[0]) / 1000

    def step_us(self, request: bytes) -> float:
        before = self.on_processor_us()
        for _ in range(STEPS):
            self._connection.sendall(request)
            (size,) = struct.unpack(">i", self._connection.recv(4, socket.MSG_WAITALL))
            self._connection.recv(size, socket.MSG_WAITALL)
        return (self.on_processor_us() - before) / STEPS


def scale(folder: Path) -> list[Figure]:
    with Crowd(folder / "small", SMALL) as small, Crowd(folder / "large", LARGE) as large:
        figures = []
        pairs = {name: (request, large.steps()[name]) for name, request in small.steps().items()}
        for name, (little, much) in pairs.items():
            small.step_us(little), large.step_us(much)
            times = [(small.step_us(little), large.step_us(much)) for _ in range(ROUNDS)]
            few, many = (statistics.median(column) for column in zip(*times, strict=True))
            figures.append(
                Figure(f"{name}, 2,000 partitions", f"{many:.1f} us", f"{few:.1f} us", many / few, "<= 2.0 x")
            )
        return figures


def _scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def _lateness(text: str) -> dict[float, float]:
    """How many samples were no later than so many ms."""
    return {
        float(edge): float(count)
        for edge, count in re.findall(r'penstock_loop_lateness_ms_bucket\{le="([^"]+)"\} (\S+)', text)
    }


def late_ms(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The edge that this share of the samples between two scrapes does not pass."""

    def until(samples: dict[float, float], edge: float) -> float:
        return max((count for one, count in samples.items() if one <= edge), default=0.0)

    total = after[float("inf")] - before.get(float("inf"), 0.0)
    return next(edge for edge in sorted(after) if until(after, edge) - until(before, edge) >= share * total)


def turns(folder: Path) -> list[Figure]:
    """A gigabyte in and out, small requests, and a gigabyte deleted meanwhile: how late the loop comes to a timer."""
    peer = Penstock(folder / "turns", metrics_listener="127.0.0.1:0")
    with peer:
        address = _metrics_address(folder / "turns" / "broker.log")
        wire = Wire(bootstrap(peer))
        for topic in ("doomed", "stream", "small"):
            wire.ask(
                19, 7, {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout": 60_000}
            )
        load.run("stream", "produce", bootstrap(peer), "doomed", 1_000_000, 1024, "none", 1)
        before = _lateness(_scrape(address))
        load.run("stream", "produce", bootstrap(peer), "stream", 1_000_000, 1024, "none", 1)
        wire.ask(20, 6, {"topics": [{"name": "doomed"}], "timeout": 60_000})
        load.run("stream", "produce", bootstrap(peer), "stream", 2_000_000, 100, "lz4", -1)
        load.run("stream", "consume", bootstrap(peer), "stream", 3_000_000)
        load.run("stream", "latency", bootstrap(peer), "small", 5000, 10, 1)
        after = _lateness(_scrape(address))
    late = late_ms(before, after, 0.999)
    return [Figure("longest turn of the loop, p99.9", f"{late:.3g} ms", f"{TURN_MS:g} ms", late / TURN_MS, "<= 1.0 x")]


def _metrics_address(log: Path) -> str:
    found = re.search(r"metrics\D*(127\.0\.0\.1:\d+)", log.read_text())
    assert found is not None, log.read_text()
    return found[1]


ALONE: dict[str, Callable[[Path], list[Figure]]] = {"scale": scale, "turns": turns}
