"""`penstock zookeeper`: a member of an ensemble, or a server of its own, in the foreground."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.config import is_port
from penstock.base.errors import ConfigError
from penstock.cli.cluster import parse_directory, parse_pairs


def zookeeper(
    data: Annotated[Path, typer.Option(metavar="DIR", parser=parse_directory, help="Directory of its data.")] = Path(
        "zookeeper-data"
    ),
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients.")] = "127.0.0.1:2181",
    member_id: Annotated[int | None, typer.Option("--id", min=1, max=255, help="This member's number.")] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(help="ID=HOST:PORT:PORT of each member of the ensemble, this one too; may be repeated."),
    ] = None,
) -> None:
    """Run a ZooKeeper server from the jars that come with pyspark, until it is stopped."""
    from penstock.app.zookeeper_server import keep_others_out, server_command, server_environment, write_server_config

    host, _, port = listen.rpartition(":")
    if not host or not is_port(port):
        raise typer.BadParameter(f"--listen {listen!r}: write HOST:PORT")
    members = _parse_members(server or ())
    if members and member_id not in members:
        raise typer.BadParameter("--id names none of the --server members")
    _check_free("--listen", host, int(port))
    if member_id in members:
        name, *ports = members[member_id].rsplit(":", 2)
        for one in ports:
            _check_free(f"--server {member_id}:", name, int(one))
    data = data.absolute()
    keep_others_out(data)
    command = server_command(write_server_config(data, host, int(port), member_id=member_id, members=members))
    os.execve(command[0], command, server_environment())


def _parse_members(texts: Iterable[str]) -> dict[int, str]:
    """Of the ensemble, by number; of two with the same one, or at the same place, it would say nothing and be another."""
    members: dict[int, str] = {}
    places: set[str] = set()
    for number, where in parse_pairs(texts, "--server"):
        name, *ports = where.rsplit(":", 2)
        if not number.isdecimal() or not name or len(ports) != 2 or not all(map(is_port, ports)):
            raise typer.BadParameter(f"--server {number}={where}: write ID=HOST:PORT:PORT")
        if int(number) in members:
            raise typer.BadParameter(f"--server {number}={where}: there is a member {number} already")
        members[int(number)] = where
        for port in ports:
            if f"{name}:{port}" in places:
                raise typer.BadParameter(f"--server {number}={where}: {name}:{port} is taken by another")
            places.add(f"{name}:{port}")
    return members


def _check_free(option: str, host: str, port: int) -> None:
    """Before the server begins: its jars come without a log, and it would end without a word."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(f"{option} {host}:{port} cannot be listened on: {error.strerror or error}") from None
