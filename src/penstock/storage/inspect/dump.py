"""Every file of a log as a stream of items: what `kafka-dump-log` shows. Broken bytes become problems, and it goes on."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.base.errors import CorruptFileError, CorruptRecordError, PenstockError, UnsupportedCompressionTypeError
from penstock.base.files import File, Files
from penstock.records.batch import Batch
from penstock.records.build import ControlType
from penstock.storage import checkpoints, names, producer_snapshot
from penstock.storage.inspect.coordinator_records import TOPICS, Decoder, UndecodableError, decode
from penstock.storage.inspect.index_entries import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY, IndexEntries
from penstock.storage.inspect.items import (
    BatchItem,
    CheckpointItem,
    ControlRecordItem,
    Field,
    Item,
    LeaderEpochItem,
    OffsetIndexItem,
    ProblemItem,
    ProducerSnapshotItem,
    PropertiesItem,
    RecordItem,
    TimeIndexItem,
    TransactionIndexItem,
)
from penstock.storage.inspect.places import FileKind, FilePlace
from penstock.storage.inspect.records import RecordView, records_of
from penstock.storage.inspect.walk import Broken, Found, LogWalk

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_END_MARKER = struct.Struct(">hi")  # version, coordinator epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    deep: bool = False
    """Records too, not only batches."""
    live: bool = False
    """A writer may be at work: a batch cut off at the end of a log is no problem."""
    decoder: Decoder | None = None
    """For keys and values; None: by the partition's name."""
    bytes_max: int | None = None
    """How much of each log is read."""
    batches_max: int | None = None
    """How many batches of each log are shown."""


def dump_file(files: Files, place: FilePlace, options: DumpOptions) -> Iterator[Item]:
    """The items of one file, read as they are asked for. OSError where the file cannot be read."""
    if place.kind is FileKind.LOG:
        yield from _log(files, place, options)
        return
    try:
        yield from _READERS[place.kind](files, place, options)
    except CorruptFileError as error:
        yield ProblemItem(file=place.path, position=None, offset=None, reason=error.reason)
    except (PenstockError, UnicodeDecodeError, ValueError) as error:
        yield ProblemItem(file=place.path, position=None, offset=None, reason=str(error))


def _log(files: Files, place: FilePlace, options: DumpOptions) -> Iterator[Item]:
    file = files.open_read(place.path)
    try:
        walk = LogWalk(file, place.base_offset, bytes_max=options.bytes_max)
        decoder = options.decoder or decoder_for(place)
        shown = 0
        old_seen = False
        for piece in walk:
            if shown == options.batches_max:
                return
            shown += 1
            if isinstance(piece, Broken):
                if not (piece.is_old_format and old_seen):  # one sentence a file will do
                    yield from _broken(place, piece, options)
                old_seen = old_seen or piece.is_old_format
                continue
            yield _batch(place.path, piece.batch, is_valid=True)
            if options.deep:
                yield from _records(place.path, piece, decoder)
    finally:
        file.close()


def decoder_for(place: FilePlace) -> Decoder | None:
    """By the name of the partition in whose directory the file lies."""
    partition = names.parse_partition_directory(place.directory.rpartition("/")[2])
    return None if partition is None else TOPICS.get(partition.topic)


def _broken(place: FilePlace, broken: Broken, options: DumpOptions) -> Iterator[Item]:
    if broken.is_tail and options.live:
        return
    if broken.header is not None:
        yield _batch(place.path, broken.header, is_valid=False)
    offset = None if broken.header is None else broken.header.base_offset
    reason = broken.reason if broken.is_old_format else f"{broken.reason} ({broken.size_bytes} bytes are not shown)"
    yield ProblemItem(file=place.path, position=broken.position, offset=offset, reason=reason)


def _batch(path: str, batch: Batch, *, is_valid: bool) -> BatchItem:
    return BatchItem(
        file=path,
        position=batch.position,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        count=batch.record_count,
        base_sequence=batch.base_sequence,
        last_sequence=batch.last_sequence,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        partition_leader_epoch=batch.leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
        timestamp_type=timestamp_type(batch),
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        size=batch.size_bytes,
        magic=batch.magic,
        compress_codec=_codec_name(batch),
        crc=batch.crc,
        is_valid=is_valid,
    )


def timestamp_type(batch: Batch) -> str:
    return "log_append_time" if batch.is_log_append_time else "create_time"


def _codec_name(batch: Batch) -> str:
    try:
        return batch.codec.name.lower()
    except UnsupportedCompressionTypeError:
        return f"unknown ({batch.attributes & 7})"


def _records(path: str, found: Found, decoder: Decoder | None) -> Iterator[Item]:
    batch = found.batch
    try:
        for record in records_of(found):
            if batch.is_control:
                yield _control_record(path, batch, record)
            else:
                yield _record(path, batch, record, decoder)
    except PenstockError as error:
        yield ProblemItem(file=path, position=batch.position, offset=batch.base_offset, reason=str(error))


def _control_record(path: str, batch: Batch, record: RecordView) -> ControlRecordItem:
    """A control batch of the metadata log may hold several, so each is read by its own key (KIP-98, KIP-595)."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptRecordError(f"the control record at offset {record.offset} has no key that says what it is")
    version, number = _CONTROL_KEY.unpack_from(record.key)
    ends_transaction = number in (ControlType.COMMIT, ControlType.ABORT)
    if ends_transaction and (record.value is None or len(record.value) < _END_MARKER.size):
        raise CorruptRecordError(f"the marker at offset {record.offset} names no coordinator epoch")
    return ControlRecordItem(
        file=path,
        offset=record.offset,
        timestamp=record.timestamp,
        type=ControlType(number).name if number in list(ControlType) else f"UNKNOWN ({number})",
        version=version,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        coordinator_epoch=_END_MARKER.unpack_from(record.value)[1] if ends_transaction and record.value else None,
        key=record.key,
        value=record.value,
    )


def _record(path: str, batch: Batch, record: RecordView, decoder: Decoder | None) -> RecordItem:
    key: Field = record.key
    value: Field = record.value
    decode_error = None
    if decoder is not None:
        try:
            key, value = decode(decoder, record.key, record.value)
        except UndecodableError as error:
            decode_error = str(error)
    return RecordItem(
        file=path,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=timestamp_type(batch),
        sequence=record.sequence,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
        key=key,
        value=value,
        headers=record.headers,
        decode_error=decode_error,
    )


def _entries(files: Files, place: FilePlace, read: Callable[[File], Iterator[Item]]) -> Iterator[Item]:
    file = files.open_read(place.path)
    try:
        yield from read(file)
    finally:
        file.close()


def _offset_index(files: Files, place: FilePlace, options: DumpOptions) -> Iterator[Item]:
    def read(file: File) -> Iterator[Item]:
        for relative, position in IndexEntries(file, OFFSET_ENTRY, live=options.live):
            yield OffsetIndexItem(file=place.path, offset=place.base_offset + relative, position=position)

    return _entries(files, place, read)


def _time_index(files: Files, place: FilePlace, options: DumpOptions) -> Iterator[Item]:
    def read(file: File) -> Iterator[Item]:
        for timestamp, relative in IndexEntries(file, TIME_ENTRY, live=options.live):
            yield TimeIndexItem(file=place.path, timestamp=timestamp, offset=place.base_offset + relative)

    return _entries(files, place, read)


def _transaction_index(files: Files, place: FilePlace, _options: DumpOptions) -> Iterator[Item]:
    def read(file: File) -> Iterator[Item]:
        entries = IndexEntries(file, TRANSACTION_ENTRY)
        for version, producer_id, first, last, stable in entries:
            if version != 0:
                reason = f"an entry has version {version} (expected 0)"
                yield ProblemItem(file=place.path, position=entries.position, offset=None, reason=reason)
                continue
            yield TransactionIndexItem(
                file=place.path,
                producer_id=producer_id,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )

    return _entries(files, place, read)


def _snapshot(files: Files, place: FilePlace, _options: DumpOptions) -> Iterator[Item]:
    for producer in producer_snapshot.decode(files.read(place.path), place.path):
        last = producer.batches[-1] if producer.batches else None
        yield ProducerSnapshotItem(
            file=place.path,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=-1 if last is None else last.last_sequence,
            last_offset=-1 if last is None else last.last_offset,
            offset_delta=0 if last is None else last.offset_delta,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            transaction_first_offset=producer.transaction_first_offset,
        )


def _offset_checkpoint(files: Files, place: FilePlace, _options: DumpOptions) -> Iterator[Item]:
    for partition, offset in checkpoints.read_offsets(files, place.path).items():
        yield CheckpointItem(file=place.path, topic=partition.topic, partition=partition.partition, offset=offset)


def _leader_epochs(files: Files, place: FilePlace, _options: DumpOptions) -> Iterator[Item]:
    for entry in checkpoints.read_epochs(files, place.path):
        yield LeaderEpochItem(file=place.path, epoch=entry.epoch, start_offset=entry.start_offset)


def _partition_metadata(files: Files, place: FilePlace, options: DumpOptions) -> Iterator[Item]:
    checkpoints.read_topic_id(files, place.directory)  # raises where it is not what it should be
    yield from _properties(files, place, options)


def _properties(files: Files, place: FilePlace, _options: DumpOptions) -> Iterator[Item]:
    text = files.read(place.path).decode()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    separator = "=" if place.kind is FileKind.META_PROPERTIES else ":"
    if place.kind is FileKind.CLEAN_SHUTDOWN:
        yield PropertiesItem(file=place.path, properties={"marker": text.strip()})
        return
    fields = [line.partition(separator) for line in lines]
    yield PropertiesItem(file=place.path, properties={key.strip(): value.strip() for key, _, value in fields})


_READERS: dict[FileKind, Callable[[Files, FilePlace, DumpOptions], Iterator[Item]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TRANSACTION_INDEX: _transaction_index,
    FileKind.SNAPSHOT: _snapshot,
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _properties,
    FileKind.CLEAN_SHUTDOWN: _properties,
}
