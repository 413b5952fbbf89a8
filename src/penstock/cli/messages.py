"""`penstock produce` and `penstock consume`: their signatures. What they do stands in `produce_run` and `consume_run`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.cluster import HERE, Bootstrap, Json, parse_pairs


class CodecName(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: str,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="What stands between key and value in a line.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Default: by the key.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="On each.")] = None,
    codec: Annotated[CodecName, typer.Option(help="How batches are compressed.")] = CodecName.NONE,
    json: Annotated[
        bool, typer.Option("--json", help='A line is {"key", "value", "headers", "partition", "timestamp"}.')
    ] = False,
    bootstrap_server: Bootstrap = HERE,
) -> None:
    """Write the lines of stdin to a topic, one record a line."""
    from penstock.cli.produce_run import LineFormat, run

    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty: nothing stands between key and value then")
    headers = tuple((key, value.encode()) for key, value in parse_pairs(header or (), "--header"))
    line = LineFormat(is_json=json, key_separator=key_separator, partition=partition, headers=headers)
    raise typer.Exit(run(bootstrap_server, topic, line, codec.value))


def consume(
    topic: str,
    from_: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or a time such as 2026-01-31T12:00.")
    ] = "earliest",
    until: Annotated[
        str | None, typer.Option(help="An offset or a time, which is not read any more; default: the end as it is now.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")] = False,
    keys: Annotated[bool, typer.Option("--keys", "-K", help="Print each key, a tab, and the value.")] = False,
    committed: Annotated[bool, typer.Option("--committed", help="Only what transactions have committed.")] = False,
    json: Json = False,
    bootstrap_server: Bootstrap = HERE,
) -> None:
    """Print the records of a topic: values, one a line, or everything with --json."""
    from penstock.cli.consume_run import Wanted, run

    if follow and until is not None:
        raise typer.BadParameter("--follow has no end: leave --until out")
    wanted = Wanted(
        start=from_, until=until, partitions=tuple(partition or ()), most=most, is_following=follow, has_keys=keys
    )
    raise typer.Exit(run(bootstrap_server, topic, wanted, as_json=json, read_committed=committed))
