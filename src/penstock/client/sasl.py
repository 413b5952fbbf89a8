"""SASL: who this client is, said before anything else (SaslHandshake, key 17, and SaslAuthenticate, key 36)."""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from penstock.base.errors import ConfigError
from penstock.client.errors import AuthenticationError, ClientError
from penstock.client.scram import ScramClient
from penstock.protocol.primitives import INT32, string

if TYPE_CHECKING:
    from penstock.client.security import Exchange

HANDSHAKE, AUTHENTICATE = 17, 36
VERSION = 1
"""Of both: mechanisms over SaslAuthenticate (KIP-152), session lifetimes (KIP-368), and not flexible yet."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_JAAS = re.compile(r'\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    mechanism: str
    username: str
    password: str = field(repr=False)

    def authenticate(self, exchange: Exchange) -> None:
        self._shake_hands(exchange)
        if self.mechanism == "PLAIN":
            _say(exchange, b"\x00".join((b"", self.username.encode(), self.password.encode())))
            return
        scram = ScramClient(_HASHES[self.mechanism], self.username, self.password, secrets.token_urlsafe(24))
        answer = _say(exchange, scram.first())
        scram.verify(_say(exchange, scram.final(answer)))

    def _shake_hands(self, exchange: Exchange) -> None:
        body = exchange(HANDSHAKE, VERSION, string(self.mechanism))
        (code,) = struct.unpack_from(">h", body)
        if code == ErrorCode.unsupported_sasl_mechanism:
            offered = ", ".join(_strings(body, 2)) or "none"
            raise AuthenticationError(f"the broker does not take sasl.mechanism={self.mechanism}; it offers {offered}")
        if code:
            raise AuthenticationError(f"the broker refuses to authenticate: {ErrorCode(code).name.upper()}")


def credentials_from(properties: Mapping[str, str]) -> Credentials:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism!r} is not spoken: {', '.join(MECHANISMS)} are")
    given = {"username": properties.get("sasl.username", ""), "password": properties.get("sasl.password", "")}
    for name, quoted, single, bare in _JAAS.findall(properties.get("sasl.jaas.config", "")):
        given[name] = re.sub(r"\\(.)", r"\1", quoted) or single or bare
    if not given["username"]:
        raise ConfigError("sasl.jaas.config (or sasl.username and sasl.password) names no user")
    return Credentials(mechanism=mechanism, **given)


def _say(exchange: Exchange, token: bytes) -> bytes:
    body = exchange(AUTHENTICATE, VERSION, INT32.pack(len(token)) + token)
    try:
        code, length = struct.unpack_from(">hh", body)
        reason = bytes(body[4 : 4 + max(0, length)]).decode("utf-8", "replace")
        at = 4 + max(0, length)
        (size,) = INT32.unpack_from(body, at)
    except struct.error:
        raise ClientError("the broker's answer to SaslAuthenticate is none") from None
    if code:
        raise AuthenticationError(f"the broker refuses these credentials: {reason or ErrorCode(code).name.upper()}")
    return bytes(body[at + 4 : at + 4 + max(0, size)])


def _strings(body: memoryview, at: int) -> list[str]:
    (count,) = INT32.unpack_from(body, at)
    at += 4
    found = []
    for _ in range(count):
        (length,) = struct.unpack_from(">h", body, at)
        found.append(bytes(body[at + 2 : at + 2 + length]).decode("utf-8", "replace"))
        at += 2 + length
    return found
