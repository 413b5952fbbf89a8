"""`penstock elect`: leaders by hand."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json


class Kind(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="`preferred` gives partitions back to their first replica; `unclean` makes a replica lead that may have lost records."
        ),
    ],
    topic: Annotated[
        list[str] | None, typer.Option(help="TOPIC or TOPIC:PARTITION; may be repeated. Default: all.")
    ] = None,
    bootstrap_server: Bootstrap = HERE,
    json: Json = False,
) -> None:
    """Elect leaders. Partitions that need no election are left as they are."""
    from penstock.cli.elect_run import run_elect
    from penstock.cli.output import open_output

    if kind is Kind.UNCLEAN and not topic:
        raise typer.BadParameter("an unclean election may lose records: name its topics with --topic")
    raise typer.Exit(run_elect(bootstrap_server, int(kind is Kind.UNCLEAN), topic or [], open_output(as_json=json)))
