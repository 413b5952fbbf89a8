"""The way over the wire: a task's range, fetched and decoded into rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.client.errors import FetchOutOfRangeError, UnknownTopicError
from penstock.client.read import read_range
from penstock.records.batch import Batch
from pyspark_penstock.clusters import cluster_for
from pyspark_penstock.options import CommonOptions
from pyspark_penstock.planning import DataLossError
from pyspark_penstock.ranges import TopicRange

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

GROUP_BYTES = 16 * 1024 * 1024

log = logging.getLogger(__name__)


def read_wire(wanted: TopicRange, options: CommonOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow columns. What is gone meanwhile is an error or passed over, by failOnDataLoss."""
    while wanted.size > 0:
        try:
            yield from _read_what_is_there(wanted, options)
        except FetchOutOfRangeError as error:
            loss = DataLossError(
                f"offsets {error.offset} to {wanted.end_offset - 1} of {wanted.topic_partition} were to be read, but its "
                f"log now holds [{error.log_start_offset}, {error.end_offset})"
            )
            if options.fail_on_data_loss:
                raise loss from error
            log.warning("%s", loss)
            if error.offset >= error.log_start_offset:
                return
            wanted = replace(wanted, start_offset=min(error.log_start_offset, wanted.end_offset))
        except UnknownTopicError as error:
            if options.fail_on_data_loss:
                raise DataLossError(str(error)) from error
            log.warning("%s", error)
            return
        else:
            return


def _read_what_is_there(wanted: TopicRange, options: CommonOptions) -> Iterator[pa.RecordBatch]:
    from penstock.records.arrow import to_arrow

    for stretch in read_range(
        cluster_for(options),
        wanted.topic_partition,
        wanted.start_offset,
        wanted.end_offset,
        topic_id=wanted.topic_id,
        stall_ms=options.poll_timeout_ms,
    ):
        yield from to_arrow(
            stretch.data,
            stretch.batches,
            from_offset=wanted.start_offset,
            to_offset=wanted.end_offset,
            time_ms_min=wanted.time_ms_min,
            time_ms_max=wanted.time_ms_max,
            group_bytes=GROUP_BYTES,
        )
        if is_past(stretch.batches, wanted):
            return


def is_past(batches: Iterable[Batch], wanted: TopicRange) -> bool:
    """Whether no record after these can be old enough. Only a broker's own clock says so: producers may be late."""
    limit_ms = wanted.time_ms_max
    if limit_ms is None or not wanted.is_in_order_of_time:
        return False
    return any(batch.is_log_append_time and batch.max_timestamp > limit_ms for batch in batches)
