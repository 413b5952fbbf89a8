"""Results as lines and tables for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from penstock.cli.escapes import printable

Justify = Literal["left", "right"]
Column = tuple[str, int, Callable[[Any], object]]
"""(heading, width, value): negative widths are for what stands to the left."""


def time_text(timestamp_ms: int) -> str:
    """`2026-01-31T12:00:00.123Z`; the number itself where no calendar has it, `-` for none."""
    if timestamp_ms == -1:
        return "-"
    try:
        seconds, milliseconds = divmod(timestamp_ms, 1000)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def size_text(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.2f} GB"


def duration_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def field_text(value: object) -> str:
    """A key or value so that no byte of it reaches the terminal as a command."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        try:
            return repr(value.decode())
        except UnicodeDecodeError:
            return repr(value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    return repr(value) if isinstance(value, str) else str(value)


def _producer(item: Any) -> str:
    if item.producer_id < 0:
        return "-"
    sequences = f" {item.base_sequence}-{item.last_sequence}" if item.base_sequence >= 0 else ""
    return f"{item.producer_id}/{item.producer_epoch}{sequences}"


def _flags(item: Any) -> str:
    flags = [
        "transactional" if item.is_transactional else "",
        "control" if item.is_control else "",
        "append-time" if item.timestamp_type == "log_append_time" else "",
        "" if item.delete_horizon_ms is None else f"delete-horizon={time_text(item.delete_horizon_ms)}",
        "" if item.is_valid else "BROKEN",
    ]
    return " ".join(flag for flag in flags if flag) or "-"


def _headers(item: Any) -> str:
    return ", ".join(f"{field_text(header.key)}: {field_text(header.value)}" for header in item.headers)


def _record_rest(item: Any) -> str:
    rest = f"{field_text(item.key)} = {field_text(item.value)}"
    if item.headers:
        rest += f"  headers {{{_headers(item)}}}"
    return rest if item.decode_error is None else f"{rest}  (not decoded: {item.decode_error})"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _marker(item: Any) -> str:
    return "-" if item.coordinator_epoch is None else str(item.coordinator_epoch)


_COLUMNS: dict[str, list[Column]] = {
    "batch": [
        ("position", 12, lambda item: item.position),
        ("base offset", 12, lambda item: item.base_offset),
        ("last offset", 12, lambda item: item.last_offset),
        ("records", 8, lambda item: item.count),
        ("bytes", 9, lambda item: item.size),
        ("codec", -7, lambda item: item.compress_codec),
        ("max timestamp", -24, lambda item: time_text(item.max_timestamp)),
        ("epoch", 6, lambda item: item.partition_leader_epoch),
        ("magic", 5, lambda item: item.magic),
        ("crc", -8, lambda item: f"{item.crc:08x}"),
        ("producer", -20, _producer),
        ("flags", 0, _flags),
    ],
    "record": [
        ("", 4, lambda _item: "|"),
        ("offset", 12, lambda item: item.offset),
        ("timestamp", -24, lambda item: time_text(item.timestamp)),
        ("sequence", 10, lambda item: item.sequence if item.sequence >= 0 else "-"),
        ("key = value", 0, _record_rest),
    ],
    "control_record": [
        ("", 4, lambda _item: "|"),
        ("offset", 12, lambda item: item.offset),
        ("timestamp", -24, lambda item: time_text(item.timestamp)),
        ("marker", -8, lambda item: item.type),
        ("coordinator epoch", 17, _marker),
        ("producer", -20, lambda item: f"{item.producer_id}/{item.producer_epoch}"),
    ],
    "offset_index": [
        ("offset", 14, lambda item: item.offset),
        ("position", 12, lambda item: item.position),
    ],
    "time_index": [
        ("timestamp", -26, lambda item: time_text(item.timestamp)),
        ("offset", 14, lambda item: item.offset),
    ],
    "transaction_index": [
        ("producer", 12, lambda item: item.producer_id),
        ("first offset", 14, lambda item: item.first_offset),
        ("last offset", 14, lambda item: item.last_offset),
        ("last stable offset", 18, lambda item: item.last_stable_offset),
    ],
    "producer_snapshot": [
        ("producer", 12, lambda item: item.producer_id),
        ("epoch", 6, lambda item: item.producer_epoch),
        ("last sequence", 13, lambda item: item.last_sequence),
        ("last offset", 14, lambda item: item.last_offset),
        ("offset delta", 12, lambda item: item.offset_delta),
        ("last timestamp", -24, lambda item: time_text(item.last_timestamp)),
        ("coordinator epoch", 17, lambda item: item.coordinator_epoch),
        ("transaction from", 16, lambda item: item.transaction_first_offset),
    ],
    "checkpoint": [
        ("topic", -40, lambda item: item.topic),
        ("partition", 9, lambda item: item.partition),
        ("offset", 14, lambda item: item.offset),
    ],
    "leader_epoch": [
        ("epoch", 8, lambda item: item.epoch),
        ("start offset", 14, lambda item: item.start_offset),
    ],
}


def _aligned(value: object, width: int) -> str:
    return f"{value!s:>{width}}" if width > 0 else f"{value!s:<{-width}}" if width else str(value)


def heading(kind: str) -> str:
    return " ".join(_aligned(name, width) for name, width, _ in _COLUMNS.get(kind, ())).rstrip()


def line(item: Any) -> str:
    """One result on one line."""
    columns = _COLUMNS.get(item.kind)
    if columns is not None:
        return " ".join(_aligned(value(item), width) for _, width, value in columns).rstrip()
    if item.kind == "problem":
        return problem_text(item)
    if item.kind == "mended":
        return f"{item.file}: {item.action}"
    if item.kind == "properties":
        return "\n".join(f"{name} = {value!r}" for name, value in item.properties.items())
    raise AssertionError(f"no line for {item.kind}")


def problem_text(item: Any) -> str:
    where = item.file
    if item.position is not None:
        where += f", position {item.position}"
    if item.offset is not None:
        where += f", offset {item.offset}"
    return f"{where}: {item.reason}"


_TABLES: dict[str, list[tuple[str, Justify, Callable[[Any], object]]]] = {
    "partition": [
        ("partition", "left", lambda item: item.partition or item.file),
        ("segments", "right", lambda item: item.segments),
        ("size", "right", lambda item: size_text(item.size_bytes)),
        ("offsets", "right", lambda item: f"{item.start_offset} - {item.end_offset}"),
        ("batches", "right", lambda item: item.batches),
        ("records", "right", lambda item: item.records),
        ("index", "right", lambda item: item.index_entries),
        ("time index", "right", lambda item: item.time_entries),
        ("aborted", "right", lambda item: item.aborted_transactions),
        ("problems", "right", lambda item: item.problems or "-"),
    ],
    "recovered": [
        ("partition", "left", lambda item: item.partition),
        ("segments", "right", lambda item: item.segments),
        ("recovered", "right", lambda item: item.recovered_segments),
        ("end offset", "right", lambda item: item.end_offset),
        ("cut", "left", lambda item: "; ".join(item.cut) or "-"),
    ],
    "topic": [
        ("topic", "left", lambda item: item.topic),
        ("partitions", "right", lambda item: item.partitions),
        ("replicas", "right", lambda item: item.replication_factor),
        ("topic id", "left", lambda item: item.topic_id or "-"),
    ],
    "topic_partition": [
        ("topic", "left", lambda item: item.topic),
        ("partition", "right", lambda item: item.partition),
        ("leader", "right", lambda item: item.leader if item.leader >= 0 else "none"),
        ("epoch", "right", lambda item: item.leader_epoch),
        ("replicas", "left", lambda item: ",".join(map(str, item.replicas))),
        ("in sync", "left", lambda item: ",".join(map(str, item.isr))),
        ("start", "right", lambda item: _or_dash(item.start_offset)),
        ("end", "right", lambda item: _or_dash(item.end_offset)),
    ],
    "election": [
        ("topic", "left", lambda item: item.topic),
        ("partition", "right", lambda item: item.partition),
        ("leader", "right", lambda item: item.leader if item.leader >= 0 else "none"),
        ("refused", "left", lambda item: item.error or "-"),
    ],
    "group": [
        ("group", "left", lambda item: item.group),
        ("state", "left", lambda item: item.state or "-"),
        ("protocol", "left", lambda item: item.protocol_type or "-"),
        ("coordinator", "right", lambda item: item.coordinator),
    ],
    "group_partition": [
        ("topic", "left", lambda item: item.topic),
        ("partition", "right", lambda item: item.partition),
        ("committed", "right", lambda item: _or_dash(item.committed_offset)),
        ("end", "right", lambda item: _or_dash(item.end_offset)),
        ("lag", "right", lambda item: _or_dash(item.lag)),
        ("member", "left", lambda item: _or_dash(item.member)),
        ("client", "left", lambda item: _or_dash(item.client_id)),
        ("host", "left", lambda item: _or_dash(item.host)),
    ],
    "group_reset": [
        ("topic", "left", lambda item: item.topic),
        ("partition", "right", lambda item: item.partition),
        ("before", "right", lambda item: _or_dash(item.before)),
        ("after", "right", lambda item: item.after),
    ],
    "config": [
        ("key", "left", lambda item: item.key),
        ("value", "left", lambda item: "(secret)" if item.sensitive else _or_dash(item.value)),
        ("source", "left", lambda item: item.source.replace("_", " ")),
        ("", "left", lambda item: "read-only" if item.read_only else ""),
        ("", "left", lambda item: item.documentation or ""),
    ],
    "transaction": [
        ("transactional id", "left", lambda item: item.transactional_id),
        ("coordinator", "right", lambda item: item.coordinator),
        ("producer", "right", lambda item: item.producer_id),
        ("state", "left", lambda item: item.state),
    ],
    "transaction_details": [
        ("transactional id", "left", lambda item: item.transactional_id),
        ("coordinator", "right", lambda item: item.coordinator),
        ("producer", "right", lambda item: f"{item.producer_id}/{item.producer_epoch}"),
        ("state", "left", lambda item: item.state),
        ("timeout ms", "right", lambda item: item.timeout_ms),
        ("began", "left", lambda item: time_text(item.start_ms)),
        ("partitions", "left", lambda item: ", ".join(item.partitions) or "-"),
    ],
    "hanging_transaction": [
        ("topic", "left", lambda item: item.topic),
        ("partition", "right", lambda item: item.partition),
        ("producer", "right", lambda item: f"{item.producer_id}/{item.producer_epoch}"),
        ("start offset", "right", lambda item: item.start_offset),
        ("last written", "left", lambda item: time_text(item.last_timestamp_ms)),
    ],
    "flow": [
        ("flow", "left", lambda item: item.flow),
        ("state", "left", lambda item: item.state),
        ("batch", "right", lambda item: item.batch if item.batch >= 0 else "-"),
        ("rows", "right", lambda item: f"{item.rows:,}"),
        ("rows/s", "right", lambda item: f"{item.rows_per_second:,.0f}"),
        ("lag", "right", lambda item: f"{item.lag_records:,}"),
        ("behind", "right", lambda item: duration_text(item.lag_seconds)),
        ("last batch", "right", lambda item: f"{item.batch_ms} ms"),
        ("most of it", "left", lambda item: item.longest_part or "-"),
        ("restarts", "right", lambda item: item.restarts),
        ("unmet", "right", lambda item: f"{sum(item.unmet.values()):,}"),
    ],
    "check": [
        ("", "left", lambda item: item.state),
        ("check", "left", lambda item: item.name),
        ("found", "left", lambda item: item.detail),
    ],
}


def table_columns(kind: str) -> list[tuple[str, Justify]]:
    return [(name, justify) for name, justify, _ in _TABLES[kind]]


def table_row(item: Any) -> list[str]:
    return [printable(str(value(item))) for _, _, value in _TABLES[item.kind]]
