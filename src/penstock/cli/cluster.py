"""What the commands that speak to a cluster share: its address, and a patience fit for somebody who waits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster

HERE = "127.0.0.1:9092"
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", "-b", metavar="HOST:PORT", help="A broker of the cluster.", envvar="PENSTOCK_BOOTSTRAP"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]

_PATIENCE = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
_OFFSET = re.compile(r"\d+")


def parse_directory(text: str | Path) -> Path:
    """Not an unset variable, which would mean the working directory."""
    if not str(text).strip():
        raise typer.BadParameter("it is empty; name a directory")
    return Path(text)


def open_cluster(servers: str, **settings: str) -> Cluster:
    from penstock.client.cluster import Cluster
    from penstock.client.config import client_config

    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(client_config({"bootstrap.servers": servers, "client.id": "penstock-cli", **_PATIENCE, **given}))


def parse_assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """key=value, each; of two with one key the later counts."""
    return dict(parse_pairs(texts, option))


def parse_pairs(texts: Iterable[str], option: str) -> list[tuple[str, str]]:
    """key=value, each."""
    found = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"{option} {text!r}: write key=value")
        found.append((key.strip(), value.strip()))
    return found


def parse_moment(text: str) -> int | None:
    """Milliseconds of a date and time in ISO's way (UTC where it names no zone); None if it is none."""
    if _OFFSET.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
