"""How a fresh socket becomes one that a broker trusts: the place of TLS and SASL.

A Security first wraps the connected socket (TLS), then speaks over the connection before anything else does (SASL);
both may do nothing. It is hashable, for connections are shared by equal configurations.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import ConfigError
from penstock.client.sasl import Credentials, credentials_from
from penstock.client.tls import Tls, tls_from

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

Exchange = Callable[[int, int, bytes], memoryview]
"""`(api key, version, body) -> body of the answer`, on a connection that has not been authenticated yet."""


class Security(Hashable, Protocol):
    def wrap(self, raw: socket.socket, host: str) -> socket.socket:
        """The socket to speak over; a failed handshake raises OSError (ssl.SSLError is one)."""

    def authenticate(self, exchange: Exchange) -> None:
        """Runs after the socket is open and before ApiVersions is asked; refusals raise ClientError."""


class Plaintext:
    """No encryption, no authentication."""

    def wrap(self, raw: socket.socket, host: str) -> socket.socket:
        return raw

    def authenticate(self, exchange: Exchange) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plaintext)

    def __hash__(self) -> int:
        return hash(Plaintext)


PLAINTEXT = Plaintext()


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS, SASL, or both."""

    tls: Tls | None
    credentials: Credentials | None

    def wrap(self, raw: socket.socket, host: str) -> socket.socket:
        return raw if self.tls is None else self.tls.wrap(raw, host)

    def authenticate(self, exchange: Exchange) -> None:
        if self.credentials is not None:
            self.credentials.authenticate(exchange)


def security_for(protocol: str, properties: Mapping[str, str]) -> Security:
    """The Security that `security.protocol` and its companions (`ssl.*`, `sasl.*`) ask for."""
    name = protocol.upper()
    if name not in PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}")
    if name == "PLAINTEXT":
        return PLAINTEXT
    return Secured(
        tls_from(properties) if name.endswith("SSL") else None,
        credentials_from(properties) if name.startswith("SASL") else None,
    )
