"""Three brokers and a ZooKeeper beside three of Apache Kafka 3.9: `make bench-cluster`.

Both clusters run one after the other on the same machine, with the same clients (librdkafka from C for throughput and
latency, from Python for what takes seconds), a ZooKeeper of the same kind each, and each broker's default settings but
for three replicas and two that must be in sync.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Message, Producer
from kazoo.client import KazooClient
from tests.support.processes import wait_until

from benchmarks import load
from benchmarks.peers import cpu_of, resident_mb_of
from benchmarks.table import Figure, chosen, header, table, write_section
from benchmarks.three_brokers import BROKERS, Member, PenstockMember, ThreeBrokers, kafka_member

DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
RECORDS = 400_000
RECORD_BYTES = 1024
SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
LED_BY_ONE = 200
MANY = 2000
FAILOVER_SECONDS = 3.0

Found = dict[str, float]


def _cpu_seconds(cluster: ThreeBrokers) -> float:
    return sum(sum(cpu_of(member.pid)) for member in cluster.members.values())


def _resident_mb(cluster: ThreeBrokers) -> float:
    return sum(resident_mb_of(member.pid) for member in cluster.members.values())


def memory_idle(cluster: ThreeBrokers) -> Found:
    return {"memory-idle": _resident_mb(cluster)}


def throughput(cluster: ThreeBrokers) -> Found:
    cluster.create("warm", SPREAD)
    _produce(cluster, "warm", RECORDS // 4)
    rates, costs = [], []
    for number in range(3):
        cluster.create(topic := f"throughput-{number}", SPREAD)
        before = _cpu_seconds(cluster)
        rates.append(_produce(cluster, topic, RECORDS))
        cluster.wait_for_isr(topic, 3)
        costs.append((_cpu_seconds(cluster) - before) / (RECORDS * RECORD_BYTES / 1e9))
    return {
        "throughput": statistics.median(rates),
        "cpu": statistics.median(costs),
        "memory-loaded": _resident_mb(cluster),
    }


def _produce(cluster: ThreeBrokers, topic: str, records: int, acks: int = -1, partitions: int = 3) -> float:
    said = load.run(
        "stream", "produce", cluster.bootstrap_servers, topic, records, RECORD_BYTES, "none", acks, partitions
    )
    return said["bytes"] / said["seconds"] / 1e6


def latency(cluster: ThreeBrokers) -> Found:
    rounds = []
    for number in range(3):
        cluster.create(topic := f"latency-{number}", SPREAD)
        rounds.append(load.run("stream", "latency", cluster.bootstrap_servers, topic, 2000, 10, -1))
    return {name: statistics.median(said[f"{name}_us"] for said in rounds) / 1000 for name in ("p50", "p99")}


class Writer:
    """Writes a record every few milliseconds, acks=all, and notes when each was acknowledged."""

    def __init__(self, cluster: ThreeBrokers, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "topic.metadata.refresh.interval.ms": 300_000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._ended = threading.Event()
        self.acknowledged: list[float] = []
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writer:
        self._thread.start()
        wait_until(lambda: len(self.acknowledged) > 200, seconds=60, what="the writer writes")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._told)
            self._producer.poll(0.005)
        self._producer.flush(120)

    def _told(self, error: object, _message: Message) -> None:
        assert error is None, error
        self.acknowledged.append(time.monotonic())

    def longest_gap(self, since: float) -> float:
        """Waits until it was quiet once and writes again for two seconds; the longest time without an acknowledgement."""
        seen = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > seen + 400, seconds=180, what="writes go on")
        times = [since, *(at for at in self.acknowledged if at >= since)]
        return max(later - earlier for earlier, later in pairwise(times))


def leader_killed(cluster: ThreeBrokers) -> Found:
    return {"killed": _gap(cluster, "killed", 1, lambda leader: leader.kill9())}


def leader_stopped(cluster: ThreeBrokers) -> Found:
    """The median of three: one in eight took a second longer than the others."""
    gaps = [_gap(cluster, f"stopped-{number}", LED_BY_ONE, lambda leader: leader.stop()) for number in range(3)]
    return {"stopped": statistics.median(gaps)}


def _gap(cluster: ThreeBrokers, topic: str, partitions: int, end: Callable[[Member], object]) -> float:
    """The longest time without writes when a leader ends, which is not the controller: election and the clients' way."""
    leader, others = _one_and_others(cluster)
    cluster.create(topic, [[leader, *others]] * partitions)
    with Writer(cluster, topic) as writer:
        start = time.monotonic()
        end(cluster.members[leader])
        gap = writer.longest_gap(start)
    cluster.members[leader].start()
    cluster.wait_for_isr(topic, 3)
    return gap


def _one_and_others(cluster: ThreeBrokers) -> tuple[int, list[int]]:
    """A broker that is not the controller, and the two others."""
    one = next(broker for broker in BROKERS if broker != _controller(cluster))
    return one, [broker for broker in BROKERS if broker != one]


def catch_up(cluster: ThreeBrokers) -> Found:
    follower, others = _one_and_others(cluster)
    cluster.create("behind", [[*others, follower]])
    cluster.members[follower].stop()
    cluster.wait_for_isr("behind", 2)
    _produce(cluster, "behind", RECORDS, acks=1, partitions=1)
    cluster.members[follower].start()
    start = time.monotonic()
    whole = cluster.wait_for_isr("behind", 3)
    return {"catch-up": RECORDS * RECORD_BYTES / 1e6 / (whole - start)}


def controller_failover(cluster: ThreeBrokers) -> Found:
    """From the end of the controller's session in ZooKeeper until both others tell of a new one and of every leader."""
    old = _controller(cluster)
    others = [broker for broker in BROKERS if broker != old]
    cluster.create("many", [[others[number % 2], others[1 - number % 2], old] for number in range(MANY)])
    gone = _when_gone(cluster, "/controller", cluster.members[old].kill9)

    def told() -> bool:
        for broker in others:
            metadata = cluster.metadata(None, f"127.0.0.1:{cluster.members[broker].port}")
            if metadata is None or metadata.controller_id not in others or old in metadata.brokers:
                return False
            topic = metadata.topics.get("many")
            partitions = [] if topic is None else topic.partitions.values()
            if len(partitions) != MANY or any(partition.leader not in others for partition in partitions):
                return False
        return True

    wait_until(told, seconds=120, what="a new controller has told all", pause_seconds_max=0.02)
    took = time.monotonic() - gone
    cluster.members[old].start()
    cluster.wait_for_isr("many", 3)
    return {"controller": took}


def _when_gone(cluster: ThreeBrokers, path: str, harm: Callable[[], object]) -> float:
    client = KazooClient(hosts=f"127.0.0.1:{cluster.zookeeper.port}")
    client.start()
    gone: list[float] = []
    try:
        assert client.exists(path, watch=lambda _event: gone.append(time.monotonic()))
        harm()
        return wait_until(
            lambda: gone[0] if gone else None, seconds=60, what="the session ends", pause_seconds_max=0.01
        )
    finally:
        client.stop()
        client.close()


def _controller(cluster: ThreeBrokers) -> int:
    metadata = wait_until(cluster.metadata, seconds=30, what="metadata")
    return int(metadata.controller_id)


BENCHES: dict[str, Callable[[ThreeBrokers], Found]] = {
    "memory": memory_idle,
    "throughput": throughput,
    "latency": latency,
    "killed": leader_killed,
    "stopped": leader_stopped,
    "catch-up": catch_up,
    "controller": controller_failover,
}
ROWS = (
    ("throughput", "produce 1 KB, three replicas, acks=all", "MB/s", ">= 1.5 x"),
    ("cpu", "CPU of the three brokers per GB", "s", "<= 0.5 x"),
    ("p50", "end to end at 2,000 records/s, acks=all, p50", "ms", "<= 1.0 x"),
    ("p99", "end to end at 2,000 records/s, acks=all, p99", "ms", "<= 1.0 x"),
    ("killed", "leader killed: time without writes", "s", "<= 0.45 x"),
    ("stopped", f"leader of {LED_BY_ONE} partitions stopped: time without writes", "s", "<= 1.0 x"),
    ("controller", f"controller killed, {MANY:,} partitions: session's end to the last broker told", "s", "<= 3.0 s"),
    ("catch-up", "follower back after a restart, until in sync", "MB/s", ">= 1.0 x"),
    ("memory-idle", "resident memory of the three, idle", "MB", "<= 0.15 x"),
    ("memory-loaded", "resident memory of the three, after the load", "MB", "<= 0.15 x"),
)


def run(names: list[str], kind: str, make: Callable[[Path, int, str], Member]) -> Found:
    found: Found = {}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        ThreeBrokers(kind, Path(folder), make) as cluster,
    ):
        for name, measure in BENCHES.items():
            if name in names:
                print(f"... {kind}: {name}", file=sys.stderr, flush=True)
                said = measure(cluster)
                print(f"    {said}", file=sys.stderr, flush=True)
                found |= said
    return found


def _ratio(ours: float, theirs: float, wanted: str) -> float:
    """Beside a bound in seconds the seconds themselves."""
    return ours if wanted.endswith(" s") else ours / theirs


def main(arguments: list[str]) -> int:
    names = chosen(BENCHES, [name for name in arguments if name != "--write"])
    theirs = run(names, "Kafka 3.9", kafka_member)
    ours = run(names, "Penstock", PenstockMember)
    figures = [
        Figure(
            work, f"{ours[key]:.3g} {unit}", f"{theirs[key]:.3g} {unit}", _ratio(ours[key], theirs[key], wanted), wanted
        )
        for key, work, unit, wanted in ROWS
        if key in ours
    ]
    said = f"`make bench-cluster`, {header()}\n\n{table(figures, 'Kafka 3.9')}"
    print(said)
    if "--write" in arguments:
        write_section(DOCUMENT, "Three brokers", said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
