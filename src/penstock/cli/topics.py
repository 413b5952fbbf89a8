"""`penstock topics …`: the signatures of its commands. What they do stands in `topics_run`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json, parse_assignments

app = typer.Typer(help="Create, look at, change and delete topics.", no_args_is_help=True)

INT_MAX, SHORT_MAX = 2**31 - 1, 2**15 - 1
"""What the wire has room for."""

Config = Annotated[list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="May be repeated.")]


@app.command()
def create(
    topic: str,
    partitions: Annotated[
        int, typer.Option(min=-1, max=INT_MAX, help="As the broker is configured, if not given.", show_default=False)
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(min=-1, max=SHORT_MAX, help="As the broker is configured, if not given.", show_default=False)
    ] = -1,
    config: Config = None,
    bootstrap_server: Bootstrap = HERE,
) -> None:
    """Make a topic."""
    from penstock.cli.topics_run import run_create

    configs = parse_assignments(config or (), "--config")
    raise typer.Exit(run_create(bootstrap_server, topic, partitions, replication_factor, configs))


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="The brokers' own topics too.")] = False,
    bootstrap_server: Bootstrap = HERE,
    json: Json = False,
) -> None:
    """Every topic, with its partitions and replicas."""
    from penstock.cli.output import open_output
    from penstock.cli.topics_run import run_list

    raise typer.Exit(run_list(bootstrap_server, open_output(as_json=json), with_internal=internal))


@app.command()
def describe(topic: list[str], bootstrap_server: Bootstrap = HERE, json: Json = False) -> None:
    """Each partition: leader, replicas, first offset and end."""
    from penstock.cli.output import open_output
    from penstock.cli.topics_run import run_describe

    raise typer.Exit(run_describe(bootstrap_server, topic, open_output(as_json=json)))


@app.command()
def delete(topic: list[str], bootstrap_server: Bootstrap = HERE) -> None:
    """Delete topics and everything in them."""
    from penstock.cli.topics_run import run_delete

    raise typer.Exit(run_delete(bootstrap_server, topic))


@app.command()
def alter(
    topic: str,
    partitions: Annotated[int | None, typer.Option(min=1, max=INT_MAX, help="Grow to so many in all.")] = None,
    config: Config = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default.")] = None,
    bootstrap_server: Bootstrap = HERE,
) -> None:
    """More partitions, other configurations."""
    from penstock.cli.topics_run import run_alter

    configs = parse_assignments(config or (), "--config")
    if partitions is None and not configs and not unset:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --unset")
    raise typer.Exit(run_alter(bootstrap_server, topic, partitions, configs, unset or []))
