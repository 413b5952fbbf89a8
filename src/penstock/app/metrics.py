"""What a broker tells of itself (row B9): the numbers of every room under Kafka's names, read when somebody asks."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.base.clock import Clock
from penstock.base.metrics import Family, Kind, Sample, counter, gauge
from penstock.drivers.loop_watch import LoopWatch
from penstock.handlers.services import Services
from penstock.metadata.image import Image
from penstock.replication.partition import Partition
from penstock.replication.traffic import Traffic
from penstock.server import request_metrics
from penstock.server.dispatch import Dispatcher
from penstock.server.listener import Server
from penstock.storage.log_directories import LogDirectories

_TRAFFIC = {
    "messages_in": ("messagesin", "Records appended."),
    "bytes_in": ("bytesin", "Bytes of records that producers sent and the log took."),
    "bytes_out": ("bytesout", "Bytes of records sent to consumers."),
    "bytes_rejected": ("bytesrejected", "Bytes refused because they were too large."),
    "produce_requests": ("totalproducerequests", "Produce requests, counted per partition."),
    "fetch_requests": ("totalfetchrequests", "Fetch requests, counted per partition."),
    "failed_produce_requests": ("failedproducerequests", "Produce requests that met an unexpected error."),
    "failed_fetch_requests": ("failedfetchrequests", "Fetch requests that met an unexpected error."),
}


class BrokerMetrics:
    """Called for the families of one broker."""

    def __init__(
        self,
        *,
        clock: Clock,
        services: Services,
        directories: LogDirectories,
        dispatcher: Dispatcher,
        server: Server,
        watch: LoopWatch,
    ) -> None:
        self._services = services
        self._directories = directories
        self._dispatcher = dispatcher
        self._server = server
        self._watch = watch
        self._clock = clock
        self._started_ms = clock.monotonic_ms()

    def __call__(self) -> Iterator[Family]:
        yield from self._traffic()
        yield from request_metrics.families(self._dispatcher.times)
        yield from self._waits()
        yield from self._replicas()
        yield from self._logs()
        yield from self._cluster()
        yield from self._process()

    def _traffic(self) -> Iterator[Family]:
        by_topic = self._services.partitions.traffic
        for field, (name, text) in _TRAFFIC.items():

            def samples(field: str = field) -> Iterator[Sample]:
                yield Sample((), _read(by_topic.total(), field))
                for topic, traffic in by_topic.topics().items():
                    yield Sample((("topic", topic),), _read(traffic, field))

            yield Family(f"kafka_server_brokertopicmetrics_{name}_total", Kind.COUNTER, text, samples)

    def _waits(self) -> Iterator[Family]:
        waits = {"Produce": self._services.produce_waits, "Fetch": self._services.fetch_waits}

        def waiting(read: Callable[[str], int]) -> Callable[[], Iterable[Sample]]:
            return lambda: [Sample((("delayedoperation", name),), read(name)) for name in waits]

        prefix = "kafka_server_delayedoperationpurgatory_"
        yield Family(
            f"{prefix}numdelayedoperations", Kind.GAUGE, "Operations that wait.",
            waiting(lambda name: waits[name].purgatory.waiting),
        )  # fmt: skip
        yield Family(
            f"{prefix}purgatorysize", Kind.GAUGE, "Entries in watcher lists.",
            waiting(lambda name: waits[name].purgatory.watched),
        )  # fmt: skip
        sessions = self._services.fetch_sessions
        prefix = "kafka_server_fetchsessioncache_"
        yield gauge(f"{prefix}numincrementalfetchsessions", "Fetch sessions.", lambda: len(sessions))
        yield gauge(
            f"{prefix}numincrementalfetchpartitionscached", "Partitions in sessions.", lambda: sessions.partitions
        )
        yield counter(
            f"{prefix}incrementalfetchsessionevictions_total", "Sessions ended early.", lambda: sessions.evictions
        )

    def _replicas(self) -> Iterator[Family]:
        held = self._services.partitions

        def count(matches: Callable[[Partition], bool]) -> Callable[[], float]:
            return lambda: sum(1 for partition in held if matches(partition))

        prefix = "kafka_server_replicamanager_"
        yield gauge(f"{prefix}partitioncount", "Partitions held here.", lambda: len(held))
        yield gauge(f"{prefix}leadercount", "Partitions led here.", count(lambda one: one.is_leader))
        yield gauge(
            f"{prefix}underreplicatedpartitions",
            "Partitions led here with replicas out of sync.",
            count(lambda one: one.is_leader and len(one.isr) < len(one.replicas)),
        )
        yield gauge(
            f"{prefix}underminisrpartitioncount",
            "Partitions led here that acks=all cannot be written.",
            count(lambda one: one.is_leader and len(one.isr) < one.effective_min_isr),
        )
        image = self._services.image
        yield gauge(
            f"{prefix}offlinereplicacount",
            "Replicas here in failed log directories.",
            lambda: sum(self._services.node_id in brokers for brokers in image.offline_replicas.values()),
        )

    def _logs(self) -> Iterator[Family]:
        prefix = "kafka_log_log_"
        reads: dict[str, tuple[str, Callable[[Partition], int]]] = {
            "logendoffset": ("The offset of the next record.", lambda one: one.log.end_offset),
            "logstartoffset": ("The first offset that can be read.", lambda one: one.log.log_start_offset),
            "size": ("Bytes of the segments.", lambda one: one.log.log.size_bytes),
            "numlogsegments": ("Segments.", lambda one: len(one.log.log.segments)),
        }
        for name, (text, read) in reads.items():

            def samples(read: Callable[[Partition], int] = read) -> Iterator[Sample]:
                for one in self._services.partitions:
                    topic, number = one.topic_partition
                    yield Sample((("topic", topic), ("partition", str(number))), read(one))

            yield Family(f"{prefix}{name}", Kind.GAUGE, text, samples)
        directories = self._directories
        yield gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed.",
            lambda: len({*directories.offline, *(one.path for one in directories.directories if one.health.failure)}),
        )

        def left(field: str) -> Callable[[], Iterable[Sample]]:
            return lambda: [
                Sample((("dir", path),), getattr(remaining, field))
                for path, remaining in directories.remaining().items()
            ]

        yield Family("kafka_log_logmanager_remaininglogstorecover", Kind.GAUGE, "Logs to recover.", left("logs"))
        yield Family(
            "kafka_log_logmanager_remainingsegmentstorecover", Kind.GAUGE, "Segments to recover.", left("segments")
        )

    def _cluster(self) -> Iterator[Family]:
        services = self._services
        image: Image = services.image
        prefix = "kafka_controller_kafkacontroller_"
        yield gauge(
            f"{prefix}activecontrollercount",
            "1 where this broker is the controller.",
            lambda: image.controller_id == services.node_id,
        )
        yield gauge(f"{prefix}activebrokercount", "Brokers.", lambda: len(image.brokers))
        yield gauge(f"{prefix}globaltopiccount", "Topics.", lambda: len(image.topics))
        yield gauge(
            f"{prefix}globalpartitioncount",
            "Partitions.",
            lambda: sum(len(topic.partitions) for topic in image.topics.values()),
        )
        yield gauge(
            f"{prefix}offlinepartitionscount",
            "Partitions without a leader.",
            lambda: sum(state.leader < 0 for topic in image.topics.values() for state in topic.partitions.values()),
        )
        yield gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups coordinated here.",
            lambda: sum(len(led.shard.groups) for led in services.groups.shards),
        )

        transactions = services.transactions
        yield gauge("penstock_transactions_open", "Transactions under way here.", lambda: transactions.open_count)
        yield gauge(
            "penstock_transactions_longest_open_ms",
            "The age of the one that has been open longest.",
            lambda: transactions.longest_open_ms,
        )
        yield counter(
            "penstock_transactions_aborted_by_timeout_total",
            "Transactions that took longer than they may.",
            lambda: transactions.aborted_by_timeout,
        )

    def _process(self) -> Iterator[Family]:
        server, watch = self._server, self._watch
        yield gauge(
            "kafka_server_socketservermetrics_connection_count", "Connections.", lambda: len(server.connections)
        )
        yield Family(
            "penstock_loop_lateness_ms", Kind.HISTOGRAM, "How late the loop came to a timer, sampled.",
            lambda: watch.lateness.samples(()),
        )  # fmt: skip
        yield gauge(
            "penstock_loop_longest_turn_ms",
            "The longest turn of the loop since the last scrape, within a tick.",
            lambda: watch.take_longest_us() / 1000,
        )
        yield gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
        yield counter("process_cpu_seconds_total", "Processor time used.", _cpu_seconds)
        yield gauge("process_open_fds", "Open descriptors.", _open_descriptors)
        yield gauge(
            "penstock_uptime_seconds",
            "Since the start.",
            lambda: (self._clock.monotonic_ms() - self._started_ms) / 1000,
        )


def _read(traffic: Traffic, field: str) -> float:
    value: int = getattr(traffic, field)
    return value


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not on Linux: the most it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _open_descriptors() -> float:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return -1
