"""A broker in a thread that answers as a test tells it to: sockets and frames are real, the rest is a script."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from kio.schema.errors import ErrorCode

from penstock.base.clock import ManualClock
from penstock.client.config import Address, ClientConfig
from penstock.client.retry import Time
from penstock.protocol.fetch import (
    AbortedTransaction,
    FetchAnswer,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_answer,
)
from penstock.protocol.headers import read_request_header, response_header, skip_header_tags
from penstock.protocol.produce import decode_produce_request, encode_produce_answer
from penstock.protocol.schemas import codec

TOPIC_ID = uuid.UUID(int=7)
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, DESCRIBE_LOG_DIRS = 0, 1, 2, 3, 18, 35
HIGHEST = {PRODUCE: 13, FETCH: 18, LIST_OFFSETS: 11, METADATA: 13, API_VERSIONS: 4}
FLEXIBLE_FROM = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6, METADATA: 9, API_VERSIONS: 3, DESCRIBE_LOG_DIRS: 2}

Handler = Callable[[int, Any], Any]
"""`(version, request) -> answer`; None closes the connection, bytes are sent as they are."""


class ScriptedBroker:
    """Serves until the `with` block ends. `requests` lists what was asked, by API key."""

    def __init__(self, handlers: dict[int, Handler] | None = None, *, highest: dict[int, int] | None = None) -> None:
        self.requests: defaultdict[int, list[Any]] = defaultdict(list)
        self.connections = 0
        self.highest = HIGHEST | (highest or {})
        self.handlers: dict[int, Handler] = {API_VERSIONS: self._api_versions, METADATA: self.metadata}
        self.handlers |= handlers or {}
        self.topics = {"t": 1}
        self.topic_id = TOPIC_ID
        self.leader = 0
        self.leader_epoch = 3
        self.brokers: dict[int, Address] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self.brokers[0] = self.address
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._threads.append(threading.Thread(target=self._accept, daemon=True))
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def config(self, **changes: Any) -> ClientConfig:
        return ClientConfig(bootstrap_servers=(self.address,), **changes)

    def metadata(self, version: int, request: Any) -> Any:
        shape = codec(METADATA, version).response
        topics = []
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        for name in names:
            is_known = name in self.topics
            partitions = tuple(
                shape.topics.partitions.make(
                    error_code=ErrorCode.none,
                    partition_index=number,
                    leader_id=self.leader,
                    leader_epoch=self.leader_epoch,
                    replica_nodes=(0,),
                    isr_nodes=(0,),
                    offline_replicas=(),
                )
                for number in range(self.topics.get(name, 0))
            )
            topics.append(
                shape.topics.make(
                    error_code=ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition,
                    name=name,
                    topic_id=self.topic_id if is_known else None,
                    is_internal=name.startswith("__"),
                    partitions=partitions,
                )
            )
        brokers = tuple(
            shape.brokers.make(node_id=node, host=address.host, port=address.port, rack=None)
            for node, address in self.brokers.items()
        )
        return shape.make(
            throttle_time=timedelta(),
            brokers=brokers,
            cluster_id="scripted",
            controller_id=0,
            topics=tuple(topics),
            error_code=ErrorCode.none,
        )

    def _api_versions(self, version: int, _request: Any) -> Any:
        shape = codec(API_VERSIONS, version).response
        keys = tuple(
            shape.api_keys.make(api_key=key, min_version=0, max_version=high) for key, high in self.highest.items()
        )
        return shape.make(error_code=ErrorCode.none, api_keys=keys, throttle_time=timedelta())

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(accepted)
            thread = threading.Thread(target=self._serve, args=(accepted,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", _read(connection, 4))
                answer = self._answer(_read(connection, size))
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        is_flexible = version >= FLEXIBLE_FROM[key]
        position = skip_header_tags(frame, header.body_position) if is_flexible else header.body_position
        request: Any
        if key == FETCH:
            request = decode_fetch_request(frame, position, version)
        elif key == PRODUCE:
            request = decode_produce_request(frame, position, version)
        else:
            request = codec(key, version).decode(frame, position)
        self.requests[key].append(request)
        answer = self.handlers[key](version, request)
        if answer is None or isinstance(answer, bytes):
            return answer
        if key == FETCH:
            body = b"".join(part for part in encode_fetch_answer(answer, version) if isinstance(part, bytes))
        elif key == PRODUCE:
            body = encode_produce_answer(answer, version)
        else:
            body = codec(key, version).encode(answer)
        framed = response_header(header.correlation_id, key, flexible=is_flexible) + body
        return struct.pack(">i", len(framed)) + framed


def _read(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return bytes(received)


def fetched(
    request: FetchRequest,
    records: bytes = b"",
    *,
    error_code: ErrorCode = ErrorCode.none,
    aborted: tuple[AbortedTransaction, ...] | None = None,
) -> FetchAnswer:
    """The answer to a Fetch for one partition."""
    topic = request.topics[0]
    partition = FetchedPartition(topic.partitions[0].partition, int(error_code), 1000, 1000, 0, aborted, -1, records)
    return FetchAnswer(0, 0, [FetchedTopic(topic.name, topic.topic_id, [partition])])


def still_time() -> Time:
    """Time that passes only by waiting."""
    clock = ManualClock()
    return Time(clock, lambda seconds: clock.advance(round(seconds * 1000)))
