"""What `penstock configs` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import typer

from penstock.cli.cluster import open_cluster
from penstock.cli.output import Output
from penstock.client import admin
from penstock.client.admin import ConfigSource, ResourceKind

OK = 0
_EVERY_BROKER = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    kind: ClassVar[str] = "config"
    key: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    """Only where it was asked for."""


def _resource(kind: str, name: str) -> tuple[ResourceKind, str]:
    if kind == "topic":
        return ResourceKind.TOPIC, name
    if name != _EVERY_BROKER and not name.isdecimal():
        raise typer.BadParameter(f"{name!r} is no broker: write its number, or `default` for all brokers")
    return ResourceKind.BROKER, "" if name == _EVERY_BROKER else name


def run_show(servers: str, kind: str, name: str, output: Output, *, with_defaults: bool, with_docs: bool) -> int:
    resource = _resource(kind, name)
    with open_cluster(servers) as cluster:
        found = admin.describe_configs(cluster, *resource)
    if not with_defaults:
        found = [one for one in found if one.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)]
    rows = [
        ConfigRow(
            key=one.name,
            value=one.value,
            source=one.source.name.lower(),
            read_only=one.is_read_only,
            sensitive=one.is_sensitive,
            documentation=one.documentation if with_docs else None,
        )
        for one in found
    ]
    output.table("", rows)
    if not found:
        output.say("nothing is set; --all shows the defaults")
    return OK


def run_change(servers: str, kind: str, name: str, values: Mapping[str, str], unset: Sequence[str]) -> int:
    resource = _resource(kind, name)
    with open_cluster(servers) as cluster:
        admin.alter_configs(cluster, *resource, values, unset)
    print(f"changed the configuration of {kind} {name}", file=sys.stderr)
    return OK
