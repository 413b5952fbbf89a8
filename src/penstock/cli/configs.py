"""`penstock configs …`: the signatures of its commands. What they do stands in `configs_run`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json, parse_assignments

app = typer.Typer(help="Look at and change configurations of topics and brokers.", no_args_is_help=True)


class Kind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"


Name = Annotated[str, typer.Argument(help="A topic, or a broker's number; `default` is for all brokers.")]


@app.command()
def show(
    kind: Kind,
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Defaults too, not only what was set.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="What each key is for.")] = False,
    bootstrap_server: Bootstrap = HERE,
    json: Json = False,
) -> None:
    """The values that hold, and where they come from."""
    from penstock.cli.configs_run import run_show
    from penstock.cli.output import open_output

    output = open_output(as_json=json)
    raise typer.Exit(run_show(bootstrap_server, kind.value, name, output, with_defaults=everything, with_docs=docs))


@app.command("set")
def set_(kind: Kind, name: Name, values: list[str], bootstrap_server: Bootstrap = HERE) -> None:
    """Set KEY=VALUE …"""
    from penstock.cli.configs_run import run_change

    assignments = parse_assignments(values, "")
    raise typer.Exit(run_change(bootstrap_server, kind.value, name, assignments, []))


@app.command()
def unset(kind: Kind, name: Name, keys: list[str], bootstrap_server: Bootstrap = HERE) -> None:
    """Take KEY … back to where the value comes from without it."""
    from penstock.cli.configs_run import run_change

    raise typer.Exit(run_change(bootstrap_server, kind.value, name, {}, keys))
