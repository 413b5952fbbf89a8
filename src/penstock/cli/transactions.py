"""`penstock transactions …`: the signatures of its commands. What they do stands in `transactions_run`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json

app = typer.Typer(help="Look at transactions, find those that hang, end them.", no_args_is_help=True)


@app.command("list")
def list_(
    bootstrap_server: Bootstrap = HERE,
    state: Annotated[
        list[str] | None, typer.Option(help="Only this state, Ongoing for example; may be repeated.")
    ] = None,
    longer_than_ms: Annotated[int, typer.Option(min=-1, help="Only those that began longer ago.")] = -1,
    json: Json = False,
) -> None:
    """Every transactional id that the cluster remembers."""
    from penstock.cli.output import open_output
    from penstock.cli.transactions_run import run_list

    raise typer.Exit(run_list(bootstrap_server, state or [], longer_than_ms, open_output(as_json=json)))


@app.command()
def describe(transactional_id: str, bootstrap_server: Bootstrap = HERE, json: Json = False) -> None:
    """How one transactional id stands: its producer, its state, its partitions."""
    from penstock.cli.output import open_output
    from penstock.cli.transactions_run import run_describe

    raise typer.Exit(run_describe(bootstrap_server, transactional_id, open_output(as_json=json)))


@app.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(show_default=False)] = None,
    topic: Annotated[str | None, typer.Option(help="Where a transaction hangs, instead of an id.")] = None,
    partition: Annotated[int, typer.Option(min=0)] = 0,
    start_offset: Annotated[int, typer.Option(min=0, help="Where it begins, as find-hanging says.")] = 0,
    bootstrap_server: Bootstrap = HERE,
    json: Json = False,
) -> None:
    """End an open transaction, and shut its producer out; with --topic one that no coordinator knows."""
    from penstock.cli.output import open_output
    from penstock.cli.transactions_run import run_abort, run_abort_hanging

    output = open_output(as_json=json)
    if (transactional_id is None) == (topic is None):
        raise typer.BadParameter("name either a transactional id or a --topic")
    if topic is not None:
        raise typer.Exit(run_abort_hanging(bootstrap_server, topic, partition, start_offset, output))
    assert transactional_id is not None
    raise typer.Exit(run_abort(bootstrap_server, transactional_id, output))


@app.command("find-hanging")
def find_hanging(
    bootstrap_server: Bootstrap = HERE,
    topic: Annotated[str | None, typer.Option(help="Look at one topic only.")] = None,
    max_transaction_timeout_ms: Annotated[
        int, typer.Option(min=0, help="The cluster's transaction.max.timeout.ms: what is older hangs.")
    ] = 900_000,
    json: Json = False,
) -> None:
    """Transactions that are open on a partition and that no coordinator will end. Exit code 1 where there are any."""
    from penstock.cli.output import open_output
    from penstock.cli.transactions_run import run_find_hanging

    output = open_output(as_json=json)
    raise typer.Exit(run_find_hanging(bootstrap_server, topic, max_transaction_timeout_ms, output))
