"""One socket to one broker: frames out, frames in, versions agreed on first.

Requests may be sent ahead of the answers: brokers answer in order, and `receive` gives the oldest answer first. A
connection that raised is closed and stays so; whoever holds it drops it.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.client.config import Address, ClientConfig
from penstock.client.errors import AnswerError, UnreachableError, UnsupportedByBrokerError
from penstock.client.messages import call_codec
from penstock.protocol.headers import API_VERSIONS_KEY
from penstock.protocol.primitives import INT32, skip_tags, string

FRAME_BYTES_MAX = 1 << 30
"""More than any broker sends; what listens for something else than Kafka's protocol often seems to."""

API_VERSIONS_FIRST = 3
SOFTWARE_NAME, SOFTWARE_VERSION = "penstock", "0.1.0"

_HEAD = struct.Struct(">ihhi")


class Answer(NamedTuple):
    """A frame and where the answer's body begins in it."""

    frame: bytearray
    position: int

    @property
    def body(self) -> bytes:
        return bytes(memoryview(self.frame)[self.position :])


class Connection:
    """Opened by its constructor, which also asks which versions the broker serves."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._correlation_id = 0
        self._sent: deque[tuple[int, bool]] = deque()
        self._client_id = string(config.client_id)
        self._socket = self._open()
        try:
            config.security.authenticate(self._exchange)
            self._versions = self._ask_versions()
        except BaseException:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        """Requests sent whose answers have not been received."""
        return len(self._sent)

    def close(self) -> None:
        self._socket.close()

    def version(self, api_key: int, name: str, lowest: int, highest: int) -> int:
        """The highest version of an API that both sides speak."""
        low, high = self._versions.get(api_key, (0, -1))
        version = min(high, highest)
        if version < max(low, lowest):
            raise UnsupportedByBrokerError(
                f"broker {self.address} serves {name} in versions {low} to {high}, needed is one of {lowest} to {highest}"
                if high >= low
                else f"broker {self.address} does not serve {name}"
            )
        return version

    def send(self, api_key: int, version: int, *body: bytes | memoryview, is_flexible: bool) -> None:
        """Sends a request; its answer is for `receive`."""
        self._correlation_id += 1
        tags = b"\x00" if is_flexible else b""
        size = 8 + len(self._client_id) + len(tags) + sum(map(len, body))
        head = _HEAD.pack(size, api_key, version, self._correlation_id) + self._client_id + tags
        self._sent.append((self._correlation_id, is_flexible and api_key != API_VERSIONS_KEY))
        try:
            if size <= 1 << 16:
                self._socket.sendall(b"".join((head, *body)))
                return
            self._socket.sendall(head)
            for part in body:
                self._socket.sendall(part)
        except OSError as error:
            raise self._broken(error) from error

    def receive(self, *, wait_ms: int = 0) -> Answer:
        """The oldest answer that is outstanding. wait_ms is what the broker was allowed to wait before answering."""
        correlation_id, has_tags = self._sent.popleft()
        timeout_ms = self._config.request_timeout_ms + wait_ms
        try:
            self._socket.settimeout(timeout_ms / 1000)
            (size,) = INT32.unpack(self._read(4))
            if not 4 <= size <= FRAME_BYTES_MAX:
                self.close()
                raise UnreachableError(
                    f"what listens at {self.address} does not speak Kafka's protocol here: a frame of {size} bytes "
                    "(is it a TLS listener, or no broker at all?)"
                )
            frame = self._read(size)
        except OSError as error:
            raise self._broken(error, timeout_ms) from error
        (answered,) = INT32.unpack_from(frame)
        if answered != correlation_id:
            self.close()
            raise UnreachableError(f"broker {self.address} answered request {answered} instead of {correlation_id}")
        return Answer(frame, skip_tags(frame, 4) if has_tags else 4)

    def call(self, api_key: int, version: int, request: Any, *, wait_ms: int = 0) -> Any:
        """Sends a request of kio's and waits for its answer."""
        codec = call_codec(api_key, version)
        self.send(api_key, version, codec.encode(request), is_flexible=codec.is_flexible)
        assert self.in_flight == 1, "call() on a connection with requests on the way"
        return codec.decode(self.receive(wait_ms=wait_ms).body)

    def _open(self) -> socket.socket:
        timeout_seconds = self._config.connect_timeout_ms / 1000
        try:
            raw = socket.create_connection((self.address.host, self.address.port), timeout_seconds)
        except (OSError, UnicodeError) as error:  # the latter for a host that is no name
            raise UnreachableError(f"broker {self.address} cannot be reached: {_reason(error)}") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._config.security.wrap(raw, self.address.host)
        except OSError as error:
            raw.close()
            raise UnreachableError(f"broker {self.address} refused the connection: {_reason(error)}") from error
        except PenstockError:
            raw.close()
            raise

    def _exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        self.send(api_key, version, body, is_flexible=call_codec(api_key, version).is_flexible)
        answer = self.receive()
        return memoryview(answer.frame)[answer.position :]

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        version = API_VERSIONS_FIRST
        while True:
            codec = call_codec(API_VERSIONS_KEY, version)
            request = codec.request.make(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
            self.send(API_VERSIONS_KEY, version, codec.encode(request), is_flexible=codec.is_flexible)
            body = self.receive().body
            (error_code,) = struct.unpack_from(">h", body)
            if error_code == ErrorCode.unsupported_version and version > 0:
                version = 0  # the answer is in version 0 too, and may lack the list (KIP-511)
                continue
            if error_code:
                raise AnswerError(f"broker {self.address}, ApiVersions", error_code)
            return {key.api_key: (key.min_version, key.max_version) for key in codec.decode(body).api_keys}

    def _read(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        at = 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if count == 0:
                raise ConnectionError("it closed the connection")
            at += count
        return buffer

    def _broken(self, error: OSError, timeout_ms: int = 0) -> UnreachableError:
        self.close()
        if isinstance(error, TimeoutError) and timeout_ms:
            return UnreachableError(f"broker {self.address} gave no answer in {timeout_ms} ms")
        return UnreachableError(f"the connection to broker {self.address} broke: {_reason(error)}")


def _reason(error: OSError | UnicodeError) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
