"""Faults on demand: what a network and a broker do to a client on a bad day, per API and for a number of requests.

Answers keep their order whatever happens to one of them, as on a real connection.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Api, Peer
from penstock.handlers.registry import make_registry
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.fetch import FetchAnswer, FetchedPartition, FetchedTopic
from penstock.protocol.headers import read_request_header, response_header, skip_header_tags
from penstock.protocol.primitives import Buffer
from penstock.protocol.produce import ProduceAnswer, ProducedPartition, ProducedTopic
from penstock.protocol.schemas import Shape, codec
from penstock.server.dispatch import Dispatch, Outcome, Parts, framed, postponed

CallLater = Callable[[float, Callable[[], None]], object]
FOR_EVER = -1

_BLANKS: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": -1,
    "int64": -1,
    "uuid": None,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}


class Kind(Enum):
    DELAY = "delay"
    FAIL = "fail"
    LOSE_REQUEST = "lose_request"
    LOSE_ANSWER = "lose_answer"


@dataclasses.dataclass(slots=True, kw_only=True)
class Fault:
    kind: Kind
    left: int
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.none


class Faults:
    """Set from any thread; each call adds a fault that later requests of the API meet, the oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apis = make_registry()
        self._faults: dict[int, list[Fault]] = {}

    def delay(self, api: str, ms: int, times: int = FOR_EVER) -> None:
        """Requests are handled so much later."""
        self._add(api, Fault(kind=Kind.DELAY, left=times, delay_ms=ms))

    def fail(self, api: str, error: str, times: int = 1) -> None:
        """Requests are not handled, and answered with this error (`not_leader_or_follower` …)."""
        try:
            code = ErrorCode[error.lower()]
        except KeyError:
            raise ValueError(f"{error!r} is no error of Kafka's; `not_leader_or_follower` for example is one") from None
        served = self._api(api)
        if served.key in _WITHOUT_ERROR or not _tells_error(codec(served.key, served.high).response):
            raise ValueError(f"an answer to {api} has no error of its own; lose its request or its answer instead")
        self._add(api, Fault(kind=Kind.FAIL, left=times, error=code))

    def lose_request(self, api: str, times: int = 1) -> None:
        """The connection breaks before the broker has seen the request."""
        self._add(api, Fault(kind=Kind.LOSE_REQUEST, left=times))

    def lose_answer(self, api: str, times: int = 1) -> None:
        """The request is handled; the connection breaks before its client hears of it."""
        self._add(api, Fault(kind=Kind.LOSE_ANSWER, left=times))

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def _api(self, name: str) -> Api:
        for api in self._apis.values():
            if api.name.lower() == name.lower():
                return api
        raise ValueError(f"there is no API {name!r}; there are {', '.join(api.name for api in self._apis.values())}")

    def _add(self, api: str, fault: Fault) -> None:
        if fault.left == 0 or fault.left < FOR_EVER:
            raise ValueError(f"a fault cannot happen {fault.left} times")
        with self._lock:
            self._faults.setdefault(self._api(api).key, []).append(fault)

    def _take(self, key: int) -> Fault | None:
        with self._lock:
            waiting = self._faults.get(key)
            if not waiting:
                return None
            fault = waiting[0]
            if fault.left > 0:
                fault.left -= 1
                if fault.left == 0:
                    waiting.pop(0)
            return fault

    # The broker's side.
    def wrap(self, dispatch: Dispatch, call_later: CallLater) -> Dispatch:
        """A dispatch that meets the faults."""

        def dispatch_with_faults(frame: Buffer, peer: Peer) -> Outcome:
            if not self._faults:
                return dispatch(frame, peer)
            fault = self._take(read_request_header(frame).api_key)
            if fault is None:
                return dispatch(frame, peer)
            if fault.kind is Kind.DELAY:
                return postponed(dispatch, frame, peer, partial(call_later, fault.delay_ms / 1000))
            if fault.kind is Kind.FAIL:
                return self._refused(frame, fault.error)
            if fault.kind is Kind.LOSE_ANSWER:
                dispatch(frame, peer)
            raise MalformedMessageError(f"a fault that was asked for: {fault.kind.value}")

        return dispatch_with_faults

    def _refused(self, frame: Buffer, error: ErrorCode) -> bytes | Parts:
        key, version, correlation_id, _, position = read_request_header(frame)
        api = self._apis[key]
        flexible = version >= api.flexible_from
        if flexible:
            position = skip_header_tags(frame, position)
        response = codec(key, version).response
        refuse, since = _REFUSALS.get(key, (_mirrored, 0))
        if version < since:
            refuse = _mirrored
        answer = refuse(api.decode(frame, position, version), error, response)
        return framed(response_header(correlation_id, key, flexible=flexible), api.encode(answer, version))


def _refuse_produce(request: Any, code: int, _: Shape) -> ProduceAnswer:
    return ProduceAnswer(
        [
            ProducedTopic(
                topic.name,
                topic.topic_id,
                [ProducedPartition(entry.partition, code, -1, -1, -1) for entry in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refuse_fetch(request: Any, code: int, _: Shape) -> FetchAnswer:
    topics = [
        FetchedTopic(
            topic.name,
            topic.topic_id,
            [FetchedPartition(entry.partition, code, -1, -1, -1, None, -1, b"") for entry in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchAnswer(0, 0, topics)


def _refuse_find_coordinator(request: Any, code: int, response: Shape) -> Any:
    made = [
        response.coordinators.make(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=None)
        for key in request.coordinator_keys
    ]
    return response.make(throttle_time=timedelta(), coordinators=tuple(made))


def _refuse_offset_fetch(request: Any, code: int, response: Shape) -> Any:
    made = [response.groups.make(group_id=one.group_id, topics=(), error_code=code) for one in request.groups]
    return response.make(throttle_time=timedelta(), groups=tuple(made))


_REFUSALS: dict[int, tuple[Callable[[Any, ErrorCode, Shape], Any], int]] = {
    0: (_refuse_produce, 0),
    1: (_refuse_fetch, 0),
    9: (_refuse_offset_fetch, 8),
    10: (_refuse_find_coordinator, 4),
}
"""Answers whose making is another than `_mirrored`, and the versions from which they are such."""

_WITHOUT_ERROR = frozenset({3, 34})
"""Metadata without a broker leaves a client with nobody to ask; AlterReplicaLogDirs is answered in another order."""
_ERRORS = ("error_code", "partition_error_code")
_KINDS: dict[type, str] = {str: "string", int: "int32"}


def _tells_error(shape: Shape) -> bool:
    return any(map(shape.has, _ERRORS)) or any(map(_tells_error, _arrays(shape).values()))


def _arrays(shape: Shape) -> dict[str, Shape]:
    """The structures of which an answer has any number."""
    return {
        field.name: getattr(shape, field.name)
        for field in dataclasses.fields(shape.schema)
        if "kafka_type" not in field.metadata and str(field.type).startswith("tuple")
    }


def _mirrored(asked: Any, error: ErrorCode, shape: Shape) -> Any:
    """An answer that says nothing but its error: as a whole, or else for each thing that was asked about.

    What request and answer call alike is taken over, an array of the answer is made of the request's.
    """
    values: dict[str, object] = {}
    arrays = {} if shape.has("error_code") else _arrays(shape)
    is_named = dataclasses.is_dataclass(asked)
    rows = [value for value in _values(asked) if isinstance(value, tuple)]
    for field in dataclasses.fields(shape.schema):
        kind = str(field.metadata.get("kafka_type"))
        array = arrays.get(field.name)
        if field.name in _ERRORS:
            values[field.name] = error
        elif array is not None and _tells_error(array):
            values[field.name] = tuple(_mirrored(row, error, array) for row in (rows[0] if rows else ()))
        elif is_named and kind != "None" and hasattr(asked, field.name):
            values[field.name] = getattr(asked, field.name)
        elif not is_named and field.name != "error_message" and kind == _KINDS.get(type(asked)):
            values[field.name], is_named = asked, True
        elif field.default is dataclasses.MISSING:
            values[field.name] = () if str(field.type).startswith("tuple") else _BLANKS[kind]
    return shape.make(**values)


def _values(asked: Any) -> list[object]:
    if not dataclasses.is_dataclass(asked):
        return []
    return [getattr(asked, field.name) for field in dataclasses.fields(asked)]
