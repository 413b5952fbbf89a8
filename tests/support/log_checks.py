"""What must hold of any log that was opened, however it was left (rows S12, S15, S16)."""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.files import Files
from penstock.records import payload
from penstock.records.batch import Batch, Stop, scan
from penstock.storage import names
from penstock.storage.answers import Bound
from penstock.storage.cleaner import uncompressed
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.partition_log import PartitionLog
from penstock.storage.producer_replay import replay
from penstock.storage.producer_state import Producers


class Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    control: bool = False


def batches_of(log: PartitionLog) -> list[Batch]:
    """Every batch by full scan, CRCs checked; segments below the log's start wait for retention, unread."""
    found = []
    for segment in log.log.from_offset(log.log_start_offset):
        data = segment.file.pread(segment.size_bytes, 0)
        result = scan(data)
        assert result.stop is Stop.COMPLETE, (segment, result.stop, result.end)
        found += result.batches
    return found


def rows_of(log: PartitionLog, *, from_offset: int | None = None, bound: Bound = Bound.LOG_END) -> list[Row]:
    """Every record from the log start, read as a consumer reads: fetch by fetch."""
    rows: list[Row] = []
    offset = log.log_start_offset if from_offset is None else from_offset
    while True:
        result = log.read(offset, bytes_max=10_000, bound=bound)
        if result.slice is None:
            return rows
        data = result.slice.read()
        found = scan(data)
        assert found.batches, "a read gives one whole batch at least"
        for batch in found.batches:
            rows += [row for row in rows_in(data, batch) if row.offset >= offset]
        offset = found.batches[-1].last_offset + 1


def rows_in(data: bytes, batch: Batch) -> list[Row]:
    body, start, end = uncompressed(data, batch)
    columns = payload.columns(body, start, end, batch.record_count)
    view = memoryview(body)
    return [
        Row(
            batch.base_offset + columns.offset_delta[slot],
            batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + columns.timestamp_delta[slot],
            field_of(view, columns.key_start[slot], columns.key_length[slot]),
            field_of(view, columns.value_start[slot], columns.value_length[slot]),
            batch.is_control,
        )
        for slot in range(batch.record_count)
    ]


def field_of(view: memoryview, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(view[start : start + length])


def check_log(log: PartitionLog, files: Files) -> None:
    """Offsets unique and rising, CRCs good, indexes equal to a full scan, producers and epochs to a rebuild, no leftovers."""
    batches = batches_of(log)
    expected = -1
    for batch in batches:
        assert batch.base_offset > expected, (batch, expected)
        expected = batch.last_offset
    assert log.end_offset >= expected + 1, (log.log.segments, log.log.end, batches)
    assert log.log_start_offset <= log.recovery_point <= log.end_offset
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
    check_indexes(log)
    check_producers(log)
    check_epochs(log, batches)
    check_names(log, files)


def check_indexes(log: PartitionLog) -> None:
    for segment in log.log.from_offset(log.log_start_offset):  # those below wait for retention, unread
        batches = list(segment.headers(0))
        offset_index, time_index = segment.indexes()
        for batch in batches:
            for offset in (batch.base_offset, batch.last_offset):
                found = segment.find(offset)
                assert found is not None
                assert found.base_offset == batch.base_offset, (offset, found, batch)
        positions = {batch.position: batch for batch in batches}
        for slot in range(offset_index.entries):
            entry = offset_index.entry(slot)
            assert entry.position in positions, (segment, entry)
            assert positions[entry.position].last_offset == entry.offset
        last_timestamp = -1
        for slot in range(time_index.entries):
            time_entry = time_index.entry(slot)
            assert time_entry.timestamp > last_timestamp
            last_timestamp = time_entry.timestamp
            reached = next(batch for batch in batches if batch.max_timestamp >= time_entry.timestamp)
            assert (reached.max_timestamp, reached.last_offset) == time_entry, (segment, slot, time_entry, reached)
        if batches:
            assert segment.largest.timestamp == max(b.max_timestamp for b in batches)


def check_producers(log: PartitionLog) -> None:
    """The state equals a replay of the whole log, for every producer whose batches are all still there."""
    rebuilt = Producers()
    for segment in log.log.from_offset(log.log_start_offset):
        replay(rebuilt, segment, log.log_start_offset)
    for wanted in rebuilt.values():
        known = log.producers.get(wanted.producer_id)
        assert known is not None, wanted.producer_id
        if wanted.coordinator_epoch < 0:  # its markers may lie below the log's start
            wanted.coordinator_epoch = known.coordinator_epoch
        if 0 <= known.transaction_first_offset < log.log_start_offset:  # so may its transaction's first batch
            wanted.transaction_first_offset = known.transaction_first_offset
        if wanted.batches:
            assert known.state() == wanted.state(), (known.state(), wanted.state())
        else:  # only its marker is left
            assert (known.epoch, known.coordinator_epoch) == (wanted.epoch, wanted.coordinator_epoch)
    known_open = log.producers.open_transactions
    wanted_open = rebuilt.open_transactions
    began_below = {first: producer for first, producer in known_open.items() if first < log.log_start_offset}
    for first, producer in wanted_open.items():
        assert known_open.get(first) == producer or producer in began_below.values(), (first, known_open)
    for first in known_open:
        assert first in wanted_open or first in began_below, (first, wanted_open)


def check_epochs(log: PartitionLog, batches: list[Batch]) -> None:
    rebuilt = LeaderEpochs()
    for batch in batches:
        if batch.leader_epoch > rebuilt.latest:
            rebuilt.assign(batch.leader_epoch, batch.base_offset)
    rebuilt.truncate_from_start(log.log_start_offset)
    rebuilt.truncate_from_end(log.end_offset)
    known = {entry.epoch: entry.start_offset for entry in log.leader_epochs.entries}
    for entry in rebuilt.entries:
        if log.config.compact and entry.start_offset == log.log_start_offset:
            continue  # compaction may have removed the batch that began the next epoch there
        assert entry.epoch in known, (entry, log.leader_epochs.entries)
        if not log.config.compact:
            assert known[entry.epoch] == entry.start_offset, (entry, log.leader_epochs.entries)


def check_names(log: PartitionLog, files: Files) -> None:
    """Every file is a loaded segment's, a snapshot of the log, or one of the known names."""
    bases = {segment.base_offset for segment in log.log.segments}
    allowed = {names.LEADER_EPOCHS, names.PARTITION_METADATA}
    waiting = {path.rpartition("/")[2] for _, paths in log.removals.pending for path in paths}
    for name in files.list(log.directory):
        if name in allowed or name in waiting or name.endswith(names.CUT):
            continue
        parsed = names.parse_segment_file(name)
        assert parsed is not None, name
        base, kind, suffix = parsed
        assert suffix == "", name
        if kind == names.SNAPSHOT:
            assert base in log.snapshots.offsets, name
        else:
            assert base in bases, name
