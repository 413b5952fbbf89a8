"""`penstock zookeeper`: a member of an ensemble, or a server of its own, in the foreground."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.config import is_port
from penstock.base.errors import ConfigError
from penstock.cli.cluster import parse_assignments


def zookeeper(
    data: Annotated[Path, typer.Option(help="Directory of its data.")] = Path("zookeeper-data"),
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
    members = {}
    for number, where in parse_assignments(server or (), "--server").items():
        name, *ports = where.rsplit(":", 2)
        if not number.isdecimal() or not name or len(ports) != 2 or not all(map(is_port, ports)):
            raise typer.BadParameter(f"--server {number}={where}: write ID=HOST:PORT:PORT")
        members[int(number)] = where
    if members and member_id not in members:
        raise typer.BadParameter("--id names none of the --server members")
    _check_free(host, int(port))
    data = data.absolute()
    keep_others_out(data)
    command = server_command(write_server_config(data, host, int(port), member_id=member_id, members=members))
    os.execve(command[0], command, server_environment())


def _check_free(host: str, port: int) -> None:
    """Before the server begins: its jars come without a log, and it would end without a word."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigError(f"--listen {host}:{port} cannot be listened on: {error.strerror or error}") from None
