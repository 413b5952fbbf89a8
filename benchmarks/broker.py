"""One broker beside Apache Kafka 4.3 on the same machine, with the same clients, in one run: ratios to Kafka.

    make bench                       everything, about ten minutes
    make bench ARGS="start requests" some of it
    make bench ARGS=--write          and puts table and picture into docs/

Both brokers run all the time and take turns; both are warm before anything is measured. The load programs are C.
"""

from __future__ import annotations

import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from benchmarks import load
from benchmarks.peers import Kafka, Peer, Penstock, bootstrap, cpu, exchange, resident_mb
from benchmarks.scale import ALONE
from benchmarks.table import Figure, chosen, header, picture, run_each, table, write_section
from penstock.records.build import build_batch

DOCS = Path(__file__).parent.parent / "docs"
CODECS = ("none", "lz4", "zstd")
SIZES = {1024: "1 KB", 100: "100 B"}
ROUNDS = 3


class Bench:
    """Two brokers, and what was found about them."""

    def __init__(self, folder: Path, ours: Peer, theirs: Peer) -> None:
        self.folder = folder
        self.ours = ours
        self.theirs = theirs
        self.figures: list[Figure] = []

    def both(self, measure: Callable[[Peer], float], rounds: int = ROUNDS) -> tuple[float, float]:
        """Takes turns, and gives the median of each."""
        pairs = [(measure(self.ours), measure(self.theirs)) for _ in range(rounds)]
        return statistics.median(ours for ours, _ in pairs), statistics.median(theirs for _, theirs in pairs)

    def add(self, work: str, ours: float, theirs: float, unit: str, wanted: str) -> None:
        figure = Figure(work, f"{ours:,.3g} {unit}", f"{theirs:,.3g} {unit}", ours / theirs, wanted)
        self.figures.append(figure)
        self.remark(f"{work}: {figure.ours}, {figure.yardstick}: {figure.ratio:.2f}")

    def remark(self, text: str) -> None:
        print(f"    {text}", file=sys.stderr, flush=True)


def create(peer: Peer, topic: str) -> None:
    """A topic of one partition, by CreateTopics version 2."""
    name = topic.encode()
    body = struct.pack(">i", 1) + struct.pack(f">h{len(name)}sihii", len(name), name, 1, 1, 0, 0)
    frame = struct.pack(">hhih", 19, 2, 1, -1) + body + struct.pack(">i?", 30_000, False)
    exchange(peer, frame)
    wanted = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(f">ih{len(name)}s?", 1, len(name), name, False)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = exchange(peer, wanted)
        at = answer.index(name)
        if answer[at - 4 : at - 2] == b"\0\0" and len(answer) > at + len(name) + 20:
            return
        time.sleep(0.05)
    raise RuntimeError(f"{peer.name} did not make {topic}")


def produce_request(topic: str, batch: bytes, acks: int = 1) -> bytes:
    """A whole frame of Produce version 9, as today's clients send it."""
    name = topic.encode()
    body = b"\0" + struct.pack(">hi", acks, 30_000) + b"\x02" + bytes([len(name) + 1]) + name + b"\x02"
    size, length = b"", len(batch) + 1
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    body += struct.pack(">i", 0) + size + bytes([length]) + batch + b"\0\0\0"
    frame = struct.pack(">hhih4s", 0, 9, 1, 4, b"load") + b"\0" + body
    return struct.pack(">i", len(frame)) + frame


def warm(bench: Bench) -> None:
    for peer in (bench.ours, bench.theirs):
        create(peer, "warm")
        load.run("stream", "produce", bootstrap(peer), "warm", 500_000, 1024, "none", 1)
        load.run("stream", "consume", bootstrap(peer), "warm", 500_000)


def start(bench: Bench) -> None:
    """The median of five starts of ours on empty directories; of Kafka's the one start, on a formatted directory."""
    seconds = [bench.ours.start_seconds]
    for number in range(4):
        with Penstock(bench.folder / f"start-{number}") as another:
            seconds.append(another.start_seconds)
    bench.add(
        "start until the first Metadata answer",
        statistics.median(seconds),
        bench.theirs.start_seconds,
        "s",
        "<= 0.15 x",
    )


def memory_idle(bench: Bench) -> None:
    bench.add("resident memory, idle", resident_mb(bench.ours), resident_mb(bench.theirs), "MB", "<= 0.15 x")


def memory_loaded(bench: Bench) -> None:
    for peer in (bench.ours, bench.theirs):
        create(peer, "two-gigabytes")
        load.run("stream", "produce", bootstrap(peer), "two-gigabytes", 2_000_000, 1024, "none", 1)
        load.run("stream", "consume", bootstrap(peer), "two-gigabytes", 2_000_000)
    bench.add(
        "resident memory after 2 GB in and out", resident_mb(bench.ours), resident_mb(bench.theirs), "MB", "<= 0.15 x"
    )


class Memory:
    """What a broker writes takes pages of memory, and they are to cost no more than they must: a virtual machine may get each from its host when it
    is first touched, at ten times the price (2.4 s of system time a GB, 0.2 s from then on, by writing files on the machine of the documents).
    And the one broker is not to pay for the writing back of the other's pages."""

    def __init__(self, folder: Path) -> None:
        self._scratch = folder / "scratch"

    def make_ready(self) -> None:
        os.sync()
        piece = os.urandom(1 << 20)
        with self._scratch.open("wb", buffering=0) as file:
            for _ in range(1024):
                file.write(piece)
        self._scratch.unlink()


class Flow:
    """Produces to and reads from a topic of its own on either broker, and notes the broker's CPU for it."""

    def __init__(self, memory: Memory, size: int, codec: str, acks: int) -> None:
        self._memory = memory
        self.records = 600_000 if size == 1024 else 3_000_000
        self._arguments = (self.records, size, codec, acks)
        self._topics: dict[str, str] = {}
        self.cpu_per_gb: dict[str, list[float]] = {}

    def produce(self, peer: Peer) -> float:
        self._topics[peer.name] = topic = f"flow-{time.monotonic_ns()}"
        create(peer, topic)
        return self._run(peer, "produce", topic, *self._arguments)

    def consume(self, peer: Peer) -> float:
        """Reads what was produced last."""
        return self._run(peer, "consume", self._topics[peer.name], self.records)

    def cpu(self, way: str, bench: Bench) -> str:
        ours, theirs = (statistics.mean(self.cpu_per_gb[f"{way} {peer.name}"]) for peer in (bench.ours, bench.theirs))
        return f"CPU per GB: {ours:.2f} s, {theirs:.2f} s: {ours / theirs:.2f}"

    def _run(self, peer: Peer, way: str, *arguments: object) -> float:
        self._memory.make_ready()
        before = cpu(peer)
        said = load.run("stream", way, bootstrap(peer), *arguments)
        self.cpu_per_gb.setdefault(f"{way} {peer.name}", []).append(cpu(peer).since(before) / said["bytes"] * 1e9)
        return said["bytes"] / said["seconds"] / 1e6


def throughput(bench: Bench) -> None:
    memory = Memory(bench.folder)
    flows = []
    for size, name in SIZES.items():
        for codec in CODECS:
            for acks, word in ((1, "1"), (-1, "all")):
                flows.append(flow := Flow(memory, size, codec, acks))
                bench.add(f"produce {name}, {codec}, acks={word}", *bench.both(flow.produce), "MB/s", ">= 1.0 x")
                bench.remark(flow.cpu("produce", bench))
            bench.add(f"fetch {name}, {codec}", *bench.both(flow.consume), "MB/s", ">= 1.0 x")
            bench.remark(flow.cpu("consume", bench))
    for way, word in (("produce", "in"), ("consume", "out")):
        ours, theirs = (
            statistics.mean(cost for flow in flows for cost in flow.cpu_per_gb.get(f"{way} {peer.name}", ()))
            for peer in (bench.ours, bench.theirs)
        )
        bench.add(f"broker CPU per GB {word}", ours, theirs, "s", "<= 0.6 x")


def requests(bench: Bench) -> None:
    batch = bytes(build_batch([(int(time.time() * 1000), None, os.urandom(100), [])]))
    prepared = bench.folder / "request.bin"
    prepared.write_bytes(produce_request("small", batch))
    for peer in (bench.ours, bench.theirs):
        create(peer, "small")
        load.run("requests", "127.0.0.1", peer.port, 64, 1, 5, prepared)
    for connections in (1, 8, 64):
        costs: dict[str, list[float]] = {}
        rate = partial(_request_rate, prepared, connections, costs)
        bench.add(f"small Produce requests, {connections} connections", *bench.both(rate, 3), "/s", ">= 1.0 x")
    ours, theirs = (statistics.median(costs[peer.name]) for peer in (bench.ours, bench.theirs))
    bench.add("CPU per small request, 64 connections", ours, theirs, "us", "<= 0.8 x")


def _request_rate(prepared: Path, connections: int, costs: dict[str, list[float]], peer: Peer) -> float:
    before = cpu(peer)
    said = load.run("requests", "127.0.0.1", peer.port, connections, 1, 5, prepared)
    costs.setdefault(peer.name, []).append(cpu(peer).since(before) / said["requests"] * 1e6)
    return said["requests"] / said["seconds"]


def latency(bench: Bench) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(3):
        for peer in (bench.ours, bench.theirs):
            create(peer, topic := f"latency-{time.monotonic_ns()}")
            found.setdefault(peer.name, []).append(load.run("stream", "latency", bootstrap(peer), topic, 5000, 10, 1))
    for name, key in (("p50", "p50_us"), ("p99", "p99_us")):
        ours, theirs = (
            statistics.median(said[key] for said in found[peer.name]) for peer in (bench.ours, bench.theirs)
        )
        bench.add(f"end to end at 5,000 records/s, {name}", ours, theirs, "us", "<= 1.0 x")


BENCHES: dict[str, Callable[[Bench], None]] = {
    "start": start,
    "memory-idle": memory_idle,
    "warm": warm,
    "throughput": throughput,
    "memory-loaded": memory_loaded,
    "requests": requests,
    "latency": latency,
}


def run(names: Iterable[str], folder: Path) -> list[Figure]:
    with Kafka(folder / "kafka") as theirs, Penstock(folder / "penstock") as ours:
        bench = Bench(folder, ours, theirs)
        for name, measure in BENCHES.items():
            if name in names:
                print(f"... {name}", file=sys.stderr, flush=True)
                measure(bench)
        return bench.figures


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    wanted = chosen([*BENCHES, *ALONE], [name for name in arguments if name != "--write"])
    figures: list[Figure] = []
    if not ALONE.keys() >= set(wanted):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            figures = run({*wanted, "warm"}, Path(folder))
    alone = run_each(ALONE, [name for name in ALONE if name in wanted])
    parts = [f"`make bench`, {header()}"]
    if figures:
        parts.append(table(figures, "Kafka 4.3"))
    if alone:
        parts.append(f"Without Kafka, beside a small broker or a bound:\n\n{table(alone, 'yardstick')}")
    said = "\n\n".join(parts)
    print(said)
    if write:
        picture(figures, "One broker beside Apache Kafka 4.3 (times better)", DOCS / "benchmarks-broker.svg")
        write_section(
            DOCS / "benchmarks.md", "One broker", f"![times better than Kafka](benchmarks-broker.svg)\n\n{said}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
