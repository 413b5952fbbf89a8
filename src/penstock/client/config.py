"""The client's settings: Kafka's names and defaults, read from a mapping of texts.

A setting of Kafka's clients that is not in the table is passed over, as those do: they warn and go on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.base.config import ConfigKey, boolean, integer, is_port, table, text, text_list
from penstock.base.errors import ConfigError
from penstock.client.security import PLAINTEXT, Security, security_for


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


KEYS: Mapping[str, ConfigKey[Any]] = table(
    text_list("bootstrap.servers", (), "Brokers to ask first: host:port, separated by commas."),
    text("client.id", "penstock", "What this client calls itself to the brokers."),
    integer("socket.connection.setup.timeout.ms", 10_000, "How long a connection may take to open.", bits=64, low=1),
    integer("request.timeout.ms", 30_000, "How long one answer may take.", low=1),
    integer("default.api.timeout.ms", 60_000, "How long an operation may take, its retries included.", low=1),
    integer("retry.backoff.ms", 100, "The pause before a first retry; each later pause is twice as long …", bits=64, low=0),
    integer("retry.backoff.max.ms", 1_000, "… up to this.", bits=64, low=0),
    integer("max.partition.fetch.bytes", 8 * 1024 * 1024, "Bytes of one partition in an answer.", low=1),
    integer("fetch.max.wait.ms", 500, "How long a broker may wait for the first byte.", low=0),
    boolean("check.crcs", True, "Whether the CRC of each batch that arrives is checked."),
    text("isolation.level", "read_uncommitted", "What of transactions is read.",
         choices=("read_uncommitted", "read_committed")),
    text("security.protocol", "PLAINTEXT", "How to speak to brokers."),
)  # fmt: skip

_ADDRESS = re.compile(r"(?:[A-Z0-9_]+://)?(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]]+)):(\d{1,5})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Hashable: two configurations that are equal may share connections."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "penstock"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    partition_bytes_max: int = 8 * 1024 * 1024
    fetch_wait_ms: int = 500
    check_crcs: bool = True
    read_committed: bool = False
    security: Security = PLAINTEXT


def parse_addresses(texts: tuple[str, ...]) -> tuple[Address, ...]:
    addresses = []
    for one in texts:
        match = _ADDRESS.match(one)
        if match is None or not is_port(match[3]):
            raise ConfigError(f"bootstrap.servers: {one!r} is not host:port")
        addresses.append(Address(match[1] or match[2], int(match[3])))
    if not addresses:
        raise ConfigError("bootstrap.servers names no broker")
    return tuple(addresses)


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    """From texts under Kafka's names. ConfigError names the key, its text and what would be valid."""
    values = {name: key.read(properties[name]) if name in properties else key.default for name, key in KEYS.items()}
    return ClientConfig(
        bootstrap_servers=parse_addresses(values["bootstrap.servers"]),
        client_id=values["client.id"],
        connect_timeout_ms=values["socket.connection.setup.timeout.ms"],
        request_timeout_ms=values["request.timeout.ms"],
        api_timeout_ms=values["default.api.timeout.ms"],
        retry_backoff_ms=values["retry.backoff.ms"],
        retry_backoff_ms_max=values["retry.backoff.max.ms"],
        partition_bytes_max=values["max.partition.fetch.bytes"],
        fetch_wait_ms=values["fetch.max.wait.ms"],
        check_crcs=values["check.crcs"],
        read_committed=values["isolation.level"] == "read_committed",
        security=security_for(values["security.protocol"], properties),
    )
