"""The latest record of each key: what a compacted topic means, whether or not the cleaner has been there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

ROWS_BETWEEN = 200_000
"""So many rows are gathered before those that are out of date are dropped; later, as many again as are left."""


def latest_per_key(batches: Iterable[pa.RecordBatch], offset_end: int) -> Iterator[pa.RecordBatch]:
    """Of each key the last record, in order of offsets; nothing of keys whose last record is a tombstone, nor without a key.

    Records at or beyond `offset_end` count as later ones, but are not given.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    held: list[pa.RecordBatch] = []
    rows, limit = 0, ROWS_BETWEEN
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= limit:
            held = _latest(pa.Table.from_batches(held)).to_batches()
            rows = sum(one.num_rows for one in held)
            limit = 2 * rows + ROWS_BETWEEN
    if not held:
        return
    found = _latest(pa.Table.from_batches(held))
    is_there = pc.and_(pc.is_valid(found["value"]), pc.less(found["offset"], offset_end))
    yield from found.filter(is_there).combine_chunks().to_batches()


def _latest(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    table = table.filter(pc.is_valid(table["key"]))
    last = table.select(["key", "offset"]).group_by("key").aggregate([("offset", "max")])["offset_max"]
    return table.filter(pc.is_in(table["offset"], value_set=last))
