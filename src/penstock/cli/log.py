"""`penstock log …`: the signatures of its commands. What they do stands in `dump`, `verify`, `repair` and `recover`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

app = typer.Typer(
    help="Look at, check, mend and recover the files of logs. A PATH is a log directory, a partition's directory or one of "
    "their files; repair and recover then take the directory in which the file lies.",
    no_args_is_help=True,
)

Paths = Annotated[list[str], typer.Argument(metavar="PATH...", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Live = Annotated[bool, typer.Option("--live", help="Read a directory that a broker is working in, as it is.")]


class DecoderName(str, Enum):  # noqa: UP042 (typer shows the values)
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


@app.command()
def dump(
    paths: Paths,
    deep: Annotated[bool, typer.Option("--deep", help="Records too, not only batches.")] = False,
    json: Json = False,
    live: Live = False,
    decoder: Annotated[
        DecoderName | None,
        typer.Option(help="Read keys and values as group offsets or transaction state; implies --deep."),
    ] = None,
    max_batches: Annotated[int | None, typer.Option(min=1, help="Batches shown of each log.")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="Bytes read of each log.")] = None,
) -> None:
    """Show what files hold: batches, records, indexes, snapshots, checkpoints."""
    from penstock.cli.dump import run
    from penstock.cli.output import open_output
    from penstock.storage.inspect.coordinator_records import Decoder
    from penstock.storage.inspect.dump import DumpOptions

    options = DumpOptions(
        deep=deep or decoder is not None,
        live=live,
        decoder=None if decoder is None else Decoder(decoder.value),
        batches_max=max_batches,
        bytes_max=max_bytes,
    )
    raise typer.Exit(run(paths, options, open_output(as_json=json)))


@app.command()
def verify(paths: Paths, json: Json = False, live: Live = False) -> None:
    """Check every batch, index entry, snapshot and checkpoint; name what is wrong."""
    from penstock.cli.output import open_output
    from penstock.cli.verify import run

    raise typer.Exit(run(paths, open_output(as_json=json), live=live))


@app.command()
def repair(
    paths: Paths,
    force: Annotated[
        bool, typer.Option("--force", help="Cut from a bad batch on; what is cut is kept as .cut.")
    ] = False,
    json: Json = False,
) -> None:
    """Mend what the log itself can tell again: indexes, snapshots, epochs, leftovers, a torn tail."""
    from penstock.cli.output import open_output
    from penstock.cli.repair import run

    raise typer.Exit(run(paths, open_output(as_json=json), force=force))


@app.command()
def recover(
    paths: Paths,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="From each log's first segment, not from its recovery point.")
    ] = False,
    json: Json = False,
) -> None:
    """Recover as a start after an unclean stop does, then leave the directory as a clean stop does."""
    from penstock.cli.output import open_output
    from penstock.cli.recover import run

    raise typer.Exit(run(paths, open_output(as_json=json), from_start=from_start))


@app.command()
def demo(
    records: Annotated[int | None, typer.Option(min=1000, help="How many records are written.")] = None,
    short: Annotated[bool, typer.Option("--short", help="A tenth of everything, for CI.")] = False,
    data: Annotated[
        str | None, typer.Option(help="An empty or new directory to write to; default: a temporary one.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files behind, and say where.")] = False,
) -> None:
    """Watch the log at work: write, kill -9, recover, prove that nothing acknowledged is missing."""
    from penstock.cli.log_demo import run

    wanted = records if records is not None else (100_000 if short else 1_000_000)
    raise typer.Exit(run(wanted, data, keep=keep))
