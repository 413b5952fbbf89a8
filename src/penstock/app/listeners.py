"""Where a broker listens, and where it tells clients to connect: Kafka's keys, checked together."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from penstock.base.errors import ConfigError
from penstock.server.listener import Address, is_any_interface, parse_listener


class Values(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


def read_listeners(values: Values) -> tuple[tuple[Address, ...], dict[str, Address]]:
    """The listeners to open, and by name what is told of them where that is another address."""
    controllers = {name.upper() for name in values["controller.listener.names"]}
    listeners = tuple(one for one in map(parse_listener, values["listeners"]) if one.name not in controllers)
    if not listeners:
        raise ConfigError("listeners is empty: a broker listens somewhere")
    _check_protocols(listeners, values["listener.security.protocol.map"])
    _check_apart(listeners)
    names = {listener.name for listener in listeners}
    among_brokers = values["inter.broker.listener.name"].upper()
    if among_brokers and among_brokers not in names:
        raise ConfigError(f"inter.broker.listener.name is {among_brokers}, which is none of the listeners")
    advertised = {}
    for told in map(parse_listener, values["advertised.listeners"]):
        if told.name in controllers:
            continue
        if told.name not in names:
            raise ConfigError(f"advertised.listeners has {told.name}, which is none of the listeners")
        if is_any_interface(told.host):
            raise ConfigError(f"{told} cannot be advertised: nobody can connect to {told.host or 'an empty host'!r}")
        advertised[told.name] = told
    return listeners, advertised


def told_address(bound: Address, advertised: Mapping[str, Address]) -> Address:
    """What clients are told of a listener: never an address that means every interface."""
    told = advertised.get(bound.name)
    if told is not None:
        return Address(name=told.name, host=told.host, port=told.port or bound.port)
    if is_any_interface(bound.host):
        return Address(name=bound.name, host=socket.gethostname(), port=bound.port)
    return bound


def _check_protocols(listeners: Iterable[Address], entries: Iterable[str]) -> None:
    protocols = {}
    for entry in entries:
        name, separator, protocol = entry.partition(":")
        if not separator:
            raise ConfigError(f"listener.security.protocol.map has {entry!r}; write NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for listener in listeners:
        protocol = protocols.get(listener.name, "")
        if not protocol:
            raise ConfigError(f"listener {listener.name} has no entry in listener.security.protocol.map")
        if protocol != "PLAINTEXT":
            raise ConfigError(f"listener {listener.name} is {protocol}: only PLAINTEXT is supported yet")


def _check_apart(listeners: tuple[Address, ...]) -> None:
    for name, count in Counter(listener.name for listener in listeners).items():
        if count > 1:
            raise ConfigError(f"listeners has {name} {count} times: each has a name of its own")
    for place, count in Counter((one.host, one.port) for one in listeners if one.port).items():
        if count > 1:
            raise ConfigError(f"listeners has port {place[1]} {count} times on one host")
