"""The two ways to a task's rows: straight from the leader's files, where they are at hand, or over the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.files import SystemFiles
from penstock.storage.live.errors import LiveLogError, LiveLossError
from penstock.storage.live.partitions import LivePartition, check_owner
from penstock.storage.live.read import read_batches
from penstock.storage.live.transactions import Aborted, read_aborted
from pyspark_penstock.latest import latest_per_key
from pyspark_penstock.options import CommonOptions
from pyspark_penstock.planning import DataLossError
from pyspark_penstock.ranges import TopicRange
from pyspark_penstock.rows import RowMaker, rechunk
from pyspark_penstock.wire import GROUP_BYTES, is_past, read_wire

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

FILES = SystemFiles()

log = logging.getLogger(__name__)


def read_rows(wanted: TopicRange, options: CommonOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a range. What is gone meanwhile is an error or passed over, by failOnDataLoss."""
    if wanted.size <= 0:
        return iter(())
    rows = RowMaker(options.columns, wanted.topic, wanted.partition)
    records = _records(wanted, options)
    if wanted.view_end_offset is not None:
        records = latest_per_key(records, wanted.view_end_offset)
    return rechunk(rows.make(batch) for batch in records)


def _records(wanted: TopicRange, options: CommonOptions) -> Iterator[pa.RecordBatch]:
    reading = _Segments(wanted, options)
    if options.mode == "wire" or not reading.can_be_read():
        return read_wire(wanted, options)
    return reading.records()


class _Segments:
    """A range read from files. Under mode=auto the wire takes over where they fail, from where the reading stands."""

    def __init__(self, wanted: TopicRange, options: CommonOptions) -> None:
        self._wanted = wanted
        self._options = options
        self._may_go_by_wire = options.client is not None and options.mode == "auto"

    def can_be_read(self) -> bool:
        """LiveLogError names the path and the reason where there is no other way."""
        wanted, origin = self._wanted, self._wanted.origin
        try:
            if origin is None:
                raise LiveLogError(f"the leader of {wanted.topic_partition} does not tell in which directory it lies")
            if origin.node_id is not None:
                check_owner(
                    FILES,
                    self._place(),
                    cluster_id=origin.cluster_id,
                    node_id=origin.node_id,
                    topic_id=wanted.topic_id,
                )
        except LiveLogError as error:
            if not self._may_go_by_wire:
                raise
            log.debug("%s is read over the wire: %s", wanted.topic_partition, error)
            return False
        return True

    def records(self) -> Iterator[pa.RecordBatch]:
        while self._wanted.size > 0:
            try:
                yield from self._read()
                return
            except LiveLogError as error:
                if self._may_go_by_wire:
                    log.debug("the rest of %s is read over the wire: %s", self._wanted.topic_partition, error)
                    yield from read_wire(self._wanted, self._options)
                    return
                self._lose(error)

    def _lose(self, error: LiveLogError) -> None:
        """Goes on where the log begins now, if that is allowed."""
        wanted = self._wanted
        loss = DataLossError(f"offsets {wanted.start_offset} to {wanted.end_offset - 1} of {wanted.topic_partition} were to be read, but {error}")  # fmt: skip
        if self._options.fail_on_data_loss or not isinstance(error, LiveLossError):
            raise loss from error
        log.warning("%s", loss)
        goes_on = error.log_start_offset > wanted.start_offset
        self._wanted = replace(wanted, start_offset=error.log_start_offset if goes_on else wanted.end_offset)

    def _read(self) -> Iterator[pa.RecordBatch]:
        from penstock.records.arrow import to_arrow

        wanted, directory = self._wanted, self._place().directory
        aborted = Aborted()
        if self._options.read_committed:
            aborted = read_aborted(FILES, directory, wanted.start_offset, wanted.end_offset)
        for stretch in read_batches(
            FILES, directory, wanted.start_offset, wanted.end_offset, time_ms_min=wanted.time_ms_min
        ):
            batches = [batch for batch in stretch.batches if not batch.is_control and batch not in aborted]
            yield from to_arrow(
                stretch.data,
                batches,
                from_offset=wanted.start_offset,
                to_offset=wanted.end_offset,
                time_ms_min=wanted.time_ms_min,
                time_ms_max=wanted.time_ms_max,
                group_bytes=GROUP_BYTES,
            )
            if is_past(batches, wanted):
                return
            self._wanted = replace(self._wanted, start_offset=stretch.batches[-1].end_offset)

    def _place(self) -> LivePartition:
        assert self._wanted.origin is not None
        return LivePartition(self._wanted.origin.log_directory, self._wanted.topic_partition)
