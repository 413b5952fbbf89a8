"""aiokafka: producers, consumers, transactions, admin calls and members of groups, on one event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.clients.session import serve, value_of


class Client:
    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producers: dict[str, Any] = {}
        self._admin: Any = None
        self._member: Any = None
        self._task: asyncio.Task[None] | None = None
        self._seen: list[str] = []

    # ---- records

    async def write(self, topic: str, codec: str, count: int, prefix: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            linger_ms=20,
        )
        await producer.start()
        sent = [await producer.send(topic, value_of(prefix, n).encode(), f"key-{n}".encode()) for n in range(count)]
        await asyncio.wait_for(asyncio.gather(*sent), 60)
        await producer.stop()

    async def read(self, topics: list[str], partitions: int, count: int, committed: bool = False) -> list[list[object]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            enable_auto_commit=False,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for topic in topics for number in range(partitions)])
        await consumer.seek_to_beginning()
        found: list[list[object]] = []
        while len(found) < count:
            one = await asyncio.wait_for(consumer.getone(), 60)
            key = None if one.key is None else one.key.decode()
            found.append([one.topic, one.partition, one.offset, key, one.value.decode()])
        await consumer.stop()
        return found

    # ---- transactions

    async def init(self, name: str, id: str, timeout_ms: int) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        self._producers[name] = producer
        await producer.start()

    async def begin(self, name: str) -> None:
        await self._producers[name].begin_transaction()

    async def send(self, name: str, topic: str, value: str) -> None:
        await asyncio.wait_for(self._producers[name].send_and_wait(topic, value.encode()), 60)

    async def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        await self._producers[name].send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)

    async def commit(self, name: str) -> None:
        await self._producers[name].commit_transaction()

    async def abort(self, name: str) -> None:
        await self._producers[name].abort_transaction()

    # ---- admin

    async def _started_admin(self) -> Any:
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await self._admin.start()
        return self._admin

    async def create(self, topic: str, partitions: int) -> None:
        answer = await (await self._started_admin()).create_topics([NewTopic(topic, partitions, 1)])
        _refuse([one[:2] for one in answer.topic_errors])

    async def describe(self, topic: str) -> int:
        return len((await (await self._started_admin()).describe_topics([topic]))[0]["partitions"])

    async def alter(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        for answer in await (await self._started_admin()).alter_configs([resource]):
            _refuse([(one[3], one[0]) for one in answer.resources])

    async def config(self, topic: str, key: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: ""})
        answer = (await (await self._started_admin()).describe_configs([resource]))[0]
        return str({one[0]: one[1] for one in answer.resources[0][4]}[key])

    async def delete_records(self, topic: str, offset: int) -> None:
        await (await self._started_admin()).delete_records({TopicPartition(topic, 0): RecordsToDelete(offset)})

    async def groups(self) -> list[str]:
        return sorted(one[0] for one in await (await self._started_admin()).list_consumer_groups())

    async def group(self, group: str) -> str:
        answer = (await (await self._started_admin()).describe_consumer_groups([group]))[0]
        return str(answer.groups[0][2])

    async def delete(self, topic: str) -> None:
        answer = await (await self._started_admin()).delete_topics([topic])
        _refuse(answer.topic_error_codes)

    async def topics(self) -> list[str]:
        return sorted(await (await self._started_admin()).list_topics())

    # ---- groups

    async def join(self, group: str, topic: str) -> None:
        self._seen = []
        self._member = AIOKafkaConsumer(
            topic,
            bootstrap_servers=self._servers,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=10_000,
            heartbeat_interval_ms=300,
        )
        await self._member.start()
        self._task = asyncio.create_task(self._take())

    async def _take(self) -> None:
        async for record in self._member:
            self._seen.append(record.value.decode())

    async def seen(self) -> dict[str, object]:
        assigned = sorted(partition.partition for partition in self._member.assignment())
        return {"values": list(self._seen), "assigned": assigned}

    async def leave(self) -> None:
        assert self._task is not None
        await self._member.stop()
        self._task.cancel()


def _refuse(codes: list[tuple[Any, Any]]) -> None:
    """Raises where an answer holds an error code, which this client leaves to its caller."""
    failed = [pair for pair in codes if any(isinstance(part, int) and part for part in pair)]
    if failed:
        raise RuntimeError(f"refused: {failed}")


class OnALoop:
    """Runs the client's coroutines on one loop that goes on between requests, as heartbeats must."""

    def __init__(self, servers: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client = Client(servers)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda **arguments: asyncio.run_coroutine_threadsafe(method(**arguments), self._loop).result()


if __name__ == "__main__":
    serve(OnALoop(sys.argv[1]))
