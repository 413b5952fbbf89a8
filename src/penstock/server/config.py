"""The server's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.config import INT_MAX, ConfigKey, integer, table, text, text_list

KEYS: Mapping[str, ConfigKey[Any]] = table(
    text_list("listeners", ("PLAINTEXT://:9092",), "Where to listen: NAME://host:port, separated by commas.", dynamic=False),
    text_list("advertised.listeners", (), "Where clients are told to connect, if not where we listen.", dynamic=False),
    text_list(
        "listener.security.protocol.map",
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "The security protocol of each listener name.",
        dynamic=False,
    ),
    text("inter.broker.listener.name", "", "The listener that brokers use among themselves.", dynamic=False),
    text("security.inter.broker.protocol", "PLAINTEXT", "The same by its protocol, where no name is set.", dynamic=False),
    text_list("controller.listener.names", (), "Listeners of KRaft controllers: there are none, and these are not opened.", dynamic=False),
    integer("socket.request.max.bytes", 104_857_600, "The largest request.", low=1, dynamic=False),
    integer("max.connections", INT_MAX, "Connections at a time.", low=0),
    integer(
        "connections.max.idle.ms", 600_000, "A connection silent for this long is closed.", bits=64, dynamic=False
    ),
    text(
        "metrics.listener",
        "",
        "Where metrics are served to Prometheus: host:port, of which the port may be 0; empty for nowhere.",
        dynamic=False,
    ),
    integer("socket.listen.backlog.size", 50, "Connections that may wait to be accepted.", low=1, dynamic=False),
)  # fmt: skip
