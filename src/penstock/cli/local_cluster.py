"""`penstock cluster …`: a cluster on this machine, with one command. What it does stands in `local_cluster_run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Json, parse_assignments, parse_directory

app = typer.Typer(help="A cluster on this machine: ZooKeeper and brokers, with one command.", no_args_is_help=True)

Data = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        parser=parse_directory,
        help="Directory of the cluster: one for ZooKeeper in it, and one for each broker.",
    ),
]


@app.command()
def up(
    data: Data = Path("penstock-cluster"),
    brokers: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 3,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT of the first broker; the others take the next ports. 0 takes free ones.")
    ] = HERE,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value for every broker.")] = None,
) -> None:
    """Start ZooKeeper and brokers, and run until SIGTERM, Ctrl-C or the end of the terminal. Prints `ready HOST:PORT,…` when all of them serve."""
    from penstock.cli.local_cluster_run import run_up

    raise typer.Exit(run_up(data, brokers, listen, parse_assignments(set_ or (), "--set")))


@app.command()
def status(data: Data = Path("penstock-cluster"), json: Json = False) -> None:
    """Which brokers of a cluster are alive, which of them is the controller, and where ZooKeeper is."""
    from penstock.cli.local_cluster_run import run_status

    raise typer.Exit(run_status(data, as_json=json))
