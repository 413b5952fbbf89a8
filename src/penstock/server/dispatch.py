"""From a frame to its handler, and from the answer to bytes.

An unknown key or version closes the connection, as in Kafka: there is no answer that its client could read. ApiVersions
is the exception: an unknown version of it is answered in version 0, so that the client can learn and ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import NO_ANSWER, Api, CloseConnectionError, Context, Framed, Peer, Pending, Services
from penstock.handlers.api_versions import unsupported_version_answer
from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.fetch import Slice
from penstock.protocol.headers import API_VERSIONS_KEY, read_request_header, response_header, skip_header_tags
from penstock.protocol.primitives import INT32, Buffer
from penstock.server.request_metrics import ApiTimes

logger = logging.getLogger(__name__)

Parts = list[bytes | Slice]

SHORT_BYTES_MAX = 64 * 1024
"""Requests up to this size may take an API's short way: in a larger one the bytes weigh more than the calls."""

_VERSION_AT = 3
"""No version has two bytes."""


class Waiting:
    """An answer that will come; `encode` turns it into the bytes to send."""

    __slots__ = ("encode", "pending")

    def __init__(self, pending: Pending[Any], encode: Callable[[Any], bytes | Parts | None]) -> None:
        self.pending = pending
        self.encode = encode


Outcome = bytes | Parts | Waiting | None
Dispatch = Callable[[Buffer, Peer], Outcome]


Run = Callable[[Callable[[], None]], object]


def postponed(dispatch: Dispatch, frame: Buffer, peer: Peer, run: Run) -> Waiting:
    """A request that is dispatched later: `run` gets what dispatches it, and calls that when the time has come."""
    inner: list[Pending[Any]] = []

    def abandon() -> None:
        for waiting in inner:
            waiting.abandon()

    pending: Pending[bytes | Parts | None] = Pending(abandon, is_held=True)

    def go() -> None:
        if pending.is_abandoned:
            return
        try:
            outcome = dispatch(frame, peer)
        except (MalformedMessageError, CloseConnectionError) as error:
            peer.close(str(error))
            return
        except Exception:
            logger.exception("a request could not be handled")
            peer.close("an internal error")
            return
        if isinstance(outcome, Waiting):
            encode = outcome.encode
            inner.append(outcome.pending)
            outcome.pending.listen(lambda answer: pending.resolve(encode(answer)))
            if outcome.pending.is_held:
                outcome.pending.on_release = pending.release
            else:
                pending.release()
        else:
            pending.resolve(outcome)

    run(go)
    return Waiting(pending, lambda parts: parts)


class Dispatcher:
    """`run_in_thread` takes the loading of a version's schema, tens of milliseconds when it is first used, off the loop."""

    def __init__(
        self,
        apis: Mapping[int, Api],
        services: Services,
        run_in_thread: Callable[[Callable[[], object], Callable[[object], object]], None] | None = None,
    ) -> None:
        self._apis = apis
        self._services = services
        self._run_in_thread = run_in_thread
        self._loaded: set[tuple[int, int]] = set()
        self._now_us = services.clock.monotonic_us
        self.times = {key: ApiTimes(api.name) for key, api in apis.items()}

    def dispatch(self, frame: Buffer, peer: Peer) -> Outcome:
        """The answer to a request: bytes, parts, one to wait for, or None where no answer is wanted.

        MalformedMessageError means: close the connection.
        """
        begun_us = self._now_us()
        api_key, version, correlation_id, client_id, position = read_request_header(frame)
        api = self._apis.get(api_key)
        if api is None:
            raise MalformedMessageError(f"API key {api_key} is not served")
        if not api.low <= version <= api.high:
            if api_key == API_VERSIONS_KEY:
                return framed(INT32.pack(correlation_id), unsupported_version_answer(self._apis))
            raise MalformedMessageError(f"{api.name} version {version} is not served, only {api.low} to {api.high}")
        if api.load is not None and self._run_in_thread is not None and (api_key, version) not in self._loaded:
            return postponed(self.dispatch, frame, peer, partial(self._load, api, version))
        flexible = version >= api.flexible_from
        if flexible:
            position = skip_header_tags(frame, position)
        times = self.times[api_key]
        times.received(version)
        if api.short is not None and len(frame) <= SHORT_BYTES_MAX and type(frame) is bytes:
            said = api.short(((frame, peer),), 0, self._services)
            if said and said[0] is not None:
                if type(said[0]) is not bytes:
                    return self._waiting_short(api, frame, said[0], begun_us)
                times.answered(self._now_us() - begun_us)
                return said[0]
        request = api.decode(frame, position, version)
        answer = api.handle(request, Context(self._services, peer, api_key, version, client_id))
        header = response_header(correlation_id, api_key, flexible=flexible)
        if type(answer) is Pending:
            return self._waiting(api, answer, header, version, begun_us)
        parts = None if answer is NO_ANSWER else framed(header, self._encoded(api, times, answer, version))
        times.answered(self._now_us() - begun_us)
        return parts

    @property
    def short_keys(self) -> frozenset[bytes]:
        """How frames of an API with a short way begin."""
        return frozenset(key.to_bytes(2, "big") for key, api in self._apis.items() if api.short is not None)

    def dispatch_short(self, requests: Sequence[tuple[bytes, Peer]], first: int) -> list[bytes | Waiting | None]:
        """Answers to small requests from the one at `first` on, as far as their API's short way goes (`Api.short`)."""
        begun_us = self._now_us()
        key = int.from_bytes(requests[first][0][:2], "big")
        api, times = self._apis[key], self.times[key]
        assert api.short is not None
        outcomes: list[bytes | Waiting | None] = []
        count = 0
        for number, answer in enumerate(api.short(requests, first, self._services), first):
            if answer is None:
                outcomes.append(None)
                continue
            frame = requests[number][0]
            times.received(frame[_VERSION_AT])
            if type(answer) is bytes:
                outcomes.append(answer)
                count += 1
            else:
                outcomes.append(self._waiting_short(api, frame, answer, begun_us))
        if count:
            times.answered(self._now_us() - begun_us, count)
        return outcomes

    def begin_short(self) -> None:
        """Before the short ways at a turn's end: who waits for what they change hears of it by `settle_short`, in this turn."""
        self._services.fetch_waits.hold()
        self._services.produce_waits.hold()

    def settle_short(self) -> None:
        try:
            self._services.fetch_waits.check()
        finally:
            self._services.produce_waits.check()

    def _waiting_short(self, api: Api, frame: bytes, answer: Any, begun_us: int) -> Waiting:
        version = frame[_VERSION_AT]
        (correlation_id,) = INT32.unpack_from(frame, 4)
        header = response_header(correlation_id, api.key, flexible=version >= api.flexible_from)
        return self._waiting(api, answer, header, version, begun_us)

    def _waiting(self, api: Api, answer: Pending[Any], header: bytes, version: int, begun_us: int) -> Waiting:
        times = self.times[api.key]
        handled_us = self._now_us()

        def encode(resolved: Any) -> bytes | Parts | None:
            times.waited(handled_us - begun_us, self._now_us() - handled_us)
            if type(resolved) is Framed:
                return resolved.frame
            return None if resolved is NO_ANSWER else framed(header, self._encoded(api, times, resolved, version))

        return Waiting(answer, encode)

    def _load(self, api: Api, version: int, go: Callable[[], None]) -> None:
        def loaded(_: object) -> None:
            self._loaded.add((api.key, version))
            go()

        assert api.load is not None
        assert self._run_in_thread is not None
        self._run_in_thread(partial(api.load, version), loaded)

    @staticmethod
    def _encoded(api: Api, times: ApiTimes, answer: Any, version: int) -> bytes | Parts:
        code = getattr(answer, "error_code", 0)
        if code:
            times.failed(ErrorCode(code).name)
        return api.encode(answer, version)


def framed(header: bytes, body: bytes | Parts) -> bytes | Parts:
    """Length, header and body."""
    if isinstance(body, bytes):
        return INT32.pack(len(header) + len(body)) + header + body
    length = len(header)
    for part in body:
        length += len(part) if isinstance(part, bytes) else part.length
    first = body[0]
    if isinstance(first, bytes):
        body[0] = INT32.pack(length) + header + first
    else:
        body.insert(0, INT32.pack(length) + header)
    return body[0] if len(body) == 1 else body  # type: ignore[return-value]
