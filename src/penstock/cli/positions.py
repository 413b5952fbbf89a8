"""Places in partitions as people name them: a word, an offset, a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer

from penstock.base.ids import TopicPartition
from penstock.cli.cluster import parse_moment
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets


def resolve(
    cluster: Cluster, places: Sequence[TopicPartition], text: str, option: str, *, read_committed: bool = False
) -> Mapping[TopicPartition, int]:
    """What `text` means in each partition, within what its log has; a time after the last record means the end."""
    starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(places, LATEST), read_committed=read_committed)
    if text in ("earliest", "latest"):
        return {place: (starts if text == "earliest" else ends)[place].offset for place in places}
    if text.isdecimal():
        return {place: min(max(int(text), starts[place].offset), ends[place].offset) for place in places}
    moment_ms = parse_moment(text)
    if moment_ms is None:
        raise typer.BadParameter(
            f"{option} {text!r}: write earliest, latest, an offset, or a time such as 2026-01-31T12:00"
        )
    # No record is older than 1970, and what is below 0 means something else to a broker.
    found = list_offsets(cluster, dict.fromkeys(places, max(moment_ms, 0)), read_committed=read_committed)
    return {place: ends[place].offset if found[place].offset == NO_OFFSET else found[place].offset for place in places}


def find_places(cluster: Cluster, texts: Sequence[str]) -> list[TopicPartition]:
    """What `--topic` names: TOPIC, for all of its partitions, or TOPIC:PARTITION."""
    found: list[TopicPartition] = []
    for text in texts:
        name, colon, number = text.rpartition(":")
        topic = name if colon else text
        if not topic or (colon and not number.isdecimal()):
            raise typer.BadParameter(f"--topic {text!r}: write TOPIC or TOPIC:PARTITION")
        partitions = cluster.topics((topic,))[topic].partitions
        if colon and int(number) not in partitions:
            raise ClientError(f"topic {topic} has no partition {number}")
        found += [TopicPartition(topic, one) for one in ([int(number)] if colon else partitions)]
    return list(dict.fromkeys(found))
