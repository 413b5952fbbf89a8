"""A broker without sockets on a file system in memory, that may be killed at any write and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from penstock.base.files import SystemFiles
from penstock.client.committed import committed_batches
from penstock.controller.leaders import decide_start_alone
from penstock.metadata.store import Committed
from penstock.protocol.fetch import AbortedTransaction
from penstock.records import payload
from penstock.records.batch import records_slice, scan
from penstock.storage.answers import Bound
from tests.support.forgetful_files import ForgetfulFiles
from tests.support.transaction_requests import TransactionRequests
from tests.unit.handlers.world import World

SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
    # A disk in memory holds all of it, and many worlds wait for the collector.
    "log_index_size_max_bytes": "65536",
}


class TransactionWorld:
    def __init__(self, topics: dict[str, int], **settings: str) -> None:
        self.files = ForgetfulFiles()
        self.files.make_directory("/data")
        self._settings = {**SETTINGS, **settings}
        self.start()
        for name, partitions in topics.items():
            self.world.create_topic(name, partitions)
        self.requests.find_coordinator("g", 0)
        self.requests.find_coordinator("x", 1)

    def start(self) -> None:
        self.world = World(Path("/data"), files=cast(SystemFiles, self.files), **self._settings)
        self.requests = TransactionRequests(self._call)
        world = self.world
        store, image = world.store, world.image
        transaction = decide_start_alone(image, 1, set())
        if transaction.operations:
            store.submit(transaction)
            store.sync()
            store.synced(store.journal_position)
            for event in store.take_events():
                assert isinstance(event, Committed)
                image.apply(event)
        world.follow(image.topics)
        world.loop.turn()
        world.transactions.start()

    def kill(self) -> None:
        """The process ends; what it wrote is in the page cache."""
        self.files.kill()
        self.files.fail_at = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def _call(self, key: int, version: int, request: Any) -> Any:
        answer = self.world.send_entity(key, version, request)
        self.world.loop.turn()
        return answer.read()

    def advance(self, ms: int) -> None:
        self.world.loop.advance(ms)

    def visible(self, topic: str, partition: int) -> list[bytes]:
        """The values that a reader of committed records sees, from the log's start to the last stable offset."""
        log = self.world.partitions.get(topic, partition).log
        values: list[bytes] = []
        offset = log.log_start_offset
        while offset < log.last_stable_offset:
            found = log.read(offset, bytes_max=1 << 20, bound=Bound.LAST_STABLE)
            assert found.slice is not None
            assert found.aborted is not None
            data = found.slice.read()
            batches = scan(data).batches
            aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in found.aborted]
            for batch in committed_batches(data, batches, aborted):
                rows = payload.columns(data, *records_slice(batch), batch.record_count)
                for start, length in zip(rows.value_start, rows.value_length, strict=True):
                    values.append(data[start : start + length])
            offset = batches[-1].last_offset + 1
        return values

    def open_transactions(self, topic: str, partition: int) -> int:
        return len(self.world.partitions.get(topic, partition).log.producers.open_transactions)
