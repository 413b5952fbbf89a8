"""What a handler is: a plain function `(request, context) -> answer | Pending`, listed with its versions in an `Api`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.base.errors import PenstockError
from penstock.handlers.services import Services
from penstock.protocol.fetch import Slice
from penstock.protocol.schemas import Shape, codec

__all__ = ["NO_ANSWER", "Api", "CloseConnectionError", "Context", "Framed", "Peer", "Pending", "Services", "kio_api"]

A = TypeVar("A")


class CloseConnectionError(PenstockError):
    """The connection is to be closed: the only answer a client without acknowledgements can see."""


class _NoAnswer:
    """Says that a request gets no answer at all."""


NO_ANSWER = _NoAnswer()


class Framed:
    """A short way's answer that had to wait: the whole frame."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


class Pending(Generic[A]):
    """An answer that is not there yet. Resolved once; a client that left abandons it, and a later answer is dropped.

    While it `is_held` its request has not begun: those behind it on its connection wait too, or a leave could overtake a
    commit, and a batch the one before it. `on_release` is called when that is over, by its answer at the latest.
    """

    __slots__ = ("_answer", "_listener", "_on_abandon", "_state", "is_held", "on_release")

    _WAITING, _RESOLVED, _ABANDONED = range(3)

    def __init__(self, on_abandon: Callable[[], object] | None = None, *, is_held: bool = False) -> None:
        self._state = self._WAITING
        self._answer: A | None = None
        self._listener: Callable[[A], None] | None = None
        self._on_abandon = on_abandon
        self.is_held = is_held
        self.on_release: Callable[[], object] | None = None

    @property
    def is_abandoned(self) -> bool:
        return self._state == self._ABANDONED

    @property
    def is_resolved(self) -> bool:
        return self._state == self._RESOLVED

    def resolve(self, answer: A) -> None:
        assert self._state != self._RESOLVED, "an answer is given once"
        if self._state == self._ABANDONED:
            return
        self._state = self._RESOLVED
        self._on_abandon = None
        if self._listener is None:
            self._answer = answer
        else:
            self._listener(answer)
        if self.is_held:
            self.release()

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            if self.on_release is not None:
                self.on_release()

    def listen(self, listener: Callable[[A], None]) -> None:
        """Calls `listener` with the answer, at once if it is there."""
        assert self._listener is None, "one connection waits for an answer"
        self._listener = listener
        if self._state == self._RESOLVED:
            listener(self._answer)  # type: ignore[arg-type]
            self._answer = None

    def follow(self, other: Pending[A]) -> None:
        """Is answered as another is; who gives this up gives the other up, also where that was before."""
        if self._state == self._ABANDONED:
            other.abandon()
            return
        self._on_abandon = other.abandon
        other.listen(self.resolve)

    def abandon(self) -> None:
        """Nobody waits any more."""
        if self._state == self._WAITING:
            self._state = self._ABANDONED
            if self._on_abandon is not None:
                self._on_abandon()


class Peer(NamedTuple):
    """Who is at the other end of a connection."""

    listener: str
    address: str
    connection: object
    principal: str = "User:ANONYMOUS"

    def close(self, reason: str) -> None:
        """Ends the connection, where it is one that can be ended."""
        close = getattr(self.connection, "close", None)
        if close is not None:
            close(reason)


class Context:
    """One request's surroundings."""

    __slots__ = ("api_key", "client_id", "peer", "services", "version")

    def __init__(self, services: Services, peer: Peer, api_key: int, version: int, client_id: str | None) -> None:
        self.services = services
        self.peer = peer
        self.api_key = api_key
        self.version = version
        self.client_id = client_id

    @property
    def response(self) -> Shape:
        """The shape of this version's response."""
        return codec(self.api_key, self.version).response


Handler = Callable[[Any, Context], Any]


class Api(NamedTuple):
    """One API as it is served."""

    key: int
    name: str
    low: int
    high: int
    flexible_from: int
    handle: Handler
    decode: Callable[[Any, int, int], Any]
    """`(frame, body position, version) -> request`."""
    encode: Callable[[Any, int], bytes | list[bytes | Slice]]
    """`(answer, version) -> body`."""
    advertised_low: int | None = None
    """Where clients are told of lower versions than are served."""
    short: Callable[[Sequence[tuple[bytes, Peer]], int, Services], list[bytes | Pending[Any] | None]] | None = None
    """`(requests with their peers, number of the first, services) -> frames of the answers`: the short way of small requests,
    one after the other up to one that needs the other way. For that one, and where None stands for an answer, nothing was
    done, and the other way is taken. An answer that waits is resolved with `Framed`, or as the handler's."""
    load: Callable[[int], object] | None = None
    """Loads a version's schema, on any thread; None where there is nothing to load."""


def kio_api(key: int, name: str, low: int, high: int, flexible_from: int, handle: Handler) -> Api:
    """An API that kio's schemas decode and encode. An answer that is bytes is encoded already."""

    def decode(frame: bytes | bytearray, position: int, version: int) -> Any:
        return codec(key, version).decode(bytes(frame), position)

    def encode(answer: Any, version: int) -> bytes:
        return answer if type(answer) is bytes else codec(key, version).encode(answer)

    return Api(key, name, low, high, flexible_from, handle, decode, encode, load=partial(codec, key))
