"""`penstock groups …`: the signatures of its commands. What they do stands in `groups_run`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json

app = typer.Typer(help="Look at consumer groups, set their offsets, delete them.", no_args_is_help=True)


@app.command("list")
def list_(bootstrap_server: Bootstrap = HERE, json: Json = False) -> None:
    """Every group, its state and its coordinator."""
    from penstock.cli.groups_run import run_list
    from penstock.cli.output import open_output

    raise typer.Exit(run_list(bootstrap_server, open_output(as_json=json)))


@app.command()
def describe(group: str, bootstrap_server: Bootstrap = HERE, json: Json = False) -> None:
    """Its partitions: what was committed, how far behind that is, and who reads it."""
    from penstock.cli.groups_run import run_describe
    from penstock.cli.output import open_output

    raise typer.Exit(run_describe(bootstrap_server, group, open_output(as_json=json)))


@app.command()
def reset(
    group: str,
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time such as 2026-01-31T12:00.")],
    topic: Annotated[
        list[str] | None, typer.Option(help="TOPIC or TOPIC:PARTITION; default: everything it has committed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be set.")] = False,
    bootstrap_server: Bootstrap = HERE,
    json: Json = False,
) -> None:
    """Set the offsets of a group that nobody is in."""
    from penstock.cli.groups_run import run_reset
    from penstock.cli.output import open_output

    output = open_output(as_json=json)
    raise typer.Exit(run_reset(bootstrap_server, group, to, topic or [], output, only_say=dry_run))


@app.command()
def delete(group: list[str], bootstrap_server: Bootstrap = HERE) -> None:
    """Forget groups that nobody is in, with their offsets."""
    from penstock.cli.groups_run import run_delete

    raise typer.Exit(run_delete(bootstrap_server, group))
