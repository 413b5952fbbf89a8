"""Real logs on a disk in memory, for tests of the replication room."""

from __future__ import annotations

import uuid
from typing import Any, cast

from tests.support.forgetful_files import ForgetfulFiles

from penstock.base.clock import ManualClock
from penstock.base.ids import TopicPartition
from penstock.records.build import build_batch
from penstock.replication.fetcher import Asked, Got
from penstock.replication.partition import Diverging, Partition
from penstock.replication.read import ReadFrom, read_partitions
from penstock.storage.answers import Bound
from penstock.storage.config import log_config
from penstock.storage.log_directories import LogDirectories

KEY = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=7)


class Replica:
    """One broker with one replica."""

    def __init__(self, broker_id: int, **configs: str) -> None:
        files = ForgetfulFiles()
        files.make_directory("/data")
        self.clock = ManualClock()
        given = {"segment_index_bytes": "65536", **configs}  # the disk in memory holds all of it
        config = log_config({name.replace("_", "."): value for name, value in given.items()}, {})
        self.directories = LogDirectories(["/data"], cast(Any, files), self.clock, config_for=lambda _key: config)
        self.directories.open()
        log = self.directories.create(KEY, config, TOPIC_ID)
        self.partition = Partition(KEY, TOPIC_ID.bytes, broker_id, log)
        self.log = log

    def lead(self, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), version: int = 0) -> None:
        self.take(self.partition.local_id, epoch, isr, replicas, version)

    def follow(self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.take(leader, epoch, isr, (1, 2, 3), 0)

    def take(self, leader: int, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...], version: int) -> None:
        self.partition.take_role(
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=replicas,
            partition_epoch=version,
            now_ms=self.clock.monotonic_ms(),
        )

    def write(self, *values: bytes, acks: int = 1) -> int:
        """Appends each as a batch of its own; the end offset then."""
        for value in values:
            self.partition.append(bytearray(build_batch([(self.clock.wall_ms(), None, value, ())])), acks)
        return self.log.end_offset

    def fetched(self, broker_id: int, offset: int, broker_epoch: int = 1) -> Any:
        return self.partition.fetched_by(broker_id, broker_epoch, offset, 0, self.clock.monotonic_ms())

    def answer(self, asked: Asked) -> Got:
        """What this leader says to a follower."""
        source = ReadFrom(self.partition, asked.offset, 1 << 20, asked.leader_epoch, None, asked.last_epoch)
        (outcome,) = read_partitions([source], 1 << 20, Bound.LOG_END)
        if outcome.error is not None:
            return Got(KEY, outcome.error, -1, -1, None, b"")
        assert outcome.result is not None
        found = outcome.result.slice
        diverging = outcome.diverging
        return Got(
            KEY,
            None,
            outcome.result.high_watermark,
            outcome.result.log_start_offset,
            None if diverging is None else Diverging(*diverging),
            b"" if found is None else found.read(),
        )

    def content(self) -> bytes:
        found = self.log.read(self.log.log_start_offset, bytes_max=1 << 20, bound=Bound.LOG_END).slice
        return b"" if found is None else found.read()
