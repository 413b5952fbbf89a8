# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels over a payload, the records after a batch's header, uncompressed: check, columns, rewrite.

    length varint | attributes 1 | timestamp delta varlong | offset delta varint | key length varint, key |
    value length varint, value | header count varint | per header: key length varint, key, value length varint, value

Varints are zig-zag, 5 bytes at most for int32 and 10 for int64; a length of -1 is null (not for header keys).
A varint padded with high zero groups is read, as Kafka reads it; one that does not fit its type is refused.

Every read is bounded by the record's own end, and that by the payload's: no count or length is believed
before the bytes are known to be there. Statuses are negative numbers; `payload.py` gives them words.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

RELEASE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 1024)
INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

BAD_VARINT = cython.declare(cython.Py_ssize_t, -1)
BAD_LENGTH = cython.declare(cython.Py_ssize_t, -2)
BAD_KEY = cython.declare(cython.Py_ssize_t, -3)
BAD_VALUE = cython.declare(cython.Py_ssize_t, -4)
BAD_HEADERS = cython.declare(cython.Py_ssize_t, -5)
BAD_BODY = cython.declare(cython.Py_ssize_t, -6)
BAD_TIMESTAMP = cython.declare(cython.Py_ssize_t, -7)
TOO_FEW = cython.declare(cython.Py_ssize_t, -8)
TOO_MANY = cython.declare(cython.Py_ssize_t, -9)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_varint(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    bits: cython.int,
) -> tuple[cython.Py_ssize_t, cython.longlong]:
    """(position after it, value) of the zig-zag varint of 32 or 64 bits at `at`; a negative position is a status."""
    raw: cython.ulonglong = 0
    group: cython.ulonglong
    shift: cython.int = 0
    if at < end and data[at] < 0x80:  # nearly always
        raw = data[at]
        return at + 1, cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
    while at < end:
        group = data[at]
        at += 1
        if shift + 7 > bits and (group >> (bits - shift)) != 0:
            return BAD_VARINT, 0  # one group too many, or bits beyond the type
        raw |= (group & 0x7F) << shift
        if group < 0x80:
            return at, cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)
        shift += 7
    return BAD_VARINT, 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def varint_bytes(value: cython.longlong) -> cython.Py_ssize_t:
    """How many bytes write_varint takes."""
    raw: cython.ulonglong
    size: cython.Py_ssize_t = 1
    if cython.compiled:
        raw = (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(cython.ulonglong, value >> 63)
    else:
        raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_varint(out: cython.pointer[cython.uchar], at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Writes the shortest zig-zag varint; the position after it. The caller has made room."""
    raw: cython.ulonglong
    if cython.compiled:
        raw = (cython.cast(cython.ulonglong, value) << 1) ^ cython.cast(cython.ulonglong, value >> 63)
    else:
        raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out[at] = (raw & 0x7F) | 0x80
        at += 1
        raw >>= 7
    out[at] = raw & 0x7F
    return at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Position after `count` headers, or a status."""
    length: cython.longlong
    if count < 0 or count > end - at:  # a header takes two bytes at least (CVE-2022-34917's kind)
        return BAD_HEADERS
    while count > 0:
        at, length = read_varint(data, at, end, 32)
        if at < 0 or length < 0 or length > end - at:
            return BAD_HEADERS
        at, length = read_varint(data, at + length, end, 32)
        if at < 0 or length < -1 or length > end - at:
            return BAD_HEADERS
        if length > 0:
            at += length
        count -= 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def read_record(data: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> RecordFields:  # noqa: F821
    """The record at `at`, whole and checked.

    (position after it or a status, timestamp delta, offset delta, where its key length stands, key start,
    key length, value start, value length, headers start, header count); null lengths are -1.
    """
    size: cython.longlong
    timestamp_delta: cython.longlong
    offset_delta: cython.longlong
    key_length: cython.longlong
    value_length: cython.longlong
    header_count: cython.longlong
    tail: cython.Py_ssize_t
    key: cython.Py_ssize_t
    value: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    at, size = read_varint(data, at, end, 32)
    if at < 0 or size < 6 or size > end - at:  # attributes and five one-byte varints
        return (BAD_VARINT if at < 0 else BAD_LENGTH), 0, 0, 0, 0, 0, 0, 0, 0, 0
    end = at + size
    at, timestamp_delta = read_varint(data, at + 1, end, 64)
    if at < 0:
        return BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    tail, offset_delta = read_varint(data, at, end, 32)
    if tail < 0:
        return BAD_VARINT, 0, 0, 0, 0, 0, 0, 0, 0, 0
    key, key_length = read_varint(data, tail, end, 32)
    if key < 0 or key_length < -1 or key_length > end - key:
        return BAD_KEY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = key + key_length if key_length > 0 else key
    value, value_length = read_varint(data, at, end, 32)
    if value < 0 or value_length < -1 or value_length > end - value:
        return BAD_VALUE, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = value + value_length if value_length > 0 else value
    headers, header_count = read_varint(data, at, end, 32)
    if headers < 0:
        return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0, 0
    at = headers
    if header_count != 0:
        at = _skip_headers(data, headers, end, header_count)
        if at < 0:
            return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if at != end:
        return BAD_BODY, 0, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        at,
        timestamp_delta,
        cython.cast(cython.int, offset_delta),
        tail,
        key,
        cython.cast(cython.Py_ssize_t, key_length),
        value,
        cython.cast(cython.Py_ssize_t, value_length),
        headers,
        cython.cast(cython.Py_ssize_t, header_count),
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def validate_records(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    summary: cython.pointer[cython.longlong],
) -> cython.Py_ssize_t:
    """0 or a status; fills the ten numbers that validate() describes."""
    index: cython.Py_ssize_t
    delta: cython.longlong
    timestamp: cython.longlong
    offset_delta: cython.int
    last: cython.int = -1
    key_length: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    max_timestamp: cython.longlong = -1
    max_delta: cython.int = -1
    keyless: cython.longlong = 0
    untimely: cython.longlong = 0
    tombstones: cython.longlong = 0
    sequential: cython.longlong = 1
    rising: cython.longlong = 1
    summary[0] = 0
    for index in range(count):
        summary[0] = index
        if at >= end:
            return TOO_FEW
        at, delta, offset_delta, _, _, key_length, _, value_length, _, _ = read_record(data, at, end)
        if at < 0:
            return at
        if (delta > 0 and base_timestamp > INT64_MAX - delta) or (delta < 0 and base_timestamp < -INT64_MAX - delta):
            return BAD_TIMESTAMP
        timestamp = base_timestamp + delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_delta = offset_delta
        if timestamp != -1 and (timestamp < oldest_ms or timestamp > newest_ms):
            untimely += 1
        keyless += key_length < 0
        tombstones += value_length < 0
        if offset_delta != index:
            sequential = 0
        if offset_delta <= last:
            rising = 0
        last = offset_delta
    if at != end:
        return TOO_MANY
    summary[1] = max_timestamp
    summary[2] = max_delta
    summary[3] = last
    summary[4] = keyless
    summary[5] = untimely
    summary[6] = tombstones
    summary[7] = sequential
    summary[8] = rising
    return 0


def validate(
    payload: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
) -> tuple[int, int, int, int, int, int, int, int, bool, bool]:
    """(status, index of the first broken record, max timestamp, its offset delta, last offset delta, records without
    a key, outside [oldest, newest], without a value, offsets consecutive from 0, offsets rising).
    """
    status: cython.Py_ssize_t
    if not 0 <= start <= end <= len(payload):
        raise IndexError("slice outside the buffer")
    if cython.compiled:
        numbers: cython.longlong[9]
        summary: cython.pointer[cython.longlong] = numbers  # noqa: F821 (a C array, declared above)
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
    else:
        summary = [0] * 9
        data = payload
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            status = validate_records(data, start, end, count, base_timestamp, oldest_ms, newest_ms, summary)
    else:
        status = validate_records(data, start, end, count, base_timestamp, oldest_ms, newest_ms, summary)
    if status != 0:
        return status, summary[0], 0, 0, 0, 0, 0, 0, False, False
    return (
        status,
        -1,
        summary[1],
        summary[2],
        summary[3],
        summary[4],
        summary[5],
        summary[6],
        summary[7] != 0,
        summary[8] != 0,
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _columns(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    timestamp_delta: cython.pointer[cython.longlong],
    columns: cython.pointer[cython.int],
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t]:
    """(0, count), or a status and the index of the first broken record. Row r of `columns` starts at r * count."""
    index: cython.Py_ssize_t = 0
    key_start: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value_start: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    headers_start: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    delta: cython.longlong
    offset_delta: cython.int
    while index < count:
        if at >= end:
            return TOO_FEW, index
        (
            at,
            delta,
            offset_delta,
            _,
            key_start,
            key_length,
            value_start,
            value_length,
            headers_start,
            header_count,
        ) = read_record(data, at, end)
        if at < 0:
            return at, index
        timestamp_delta[index] = delta
        columns[index] = offset_delta
        columns[count + index] = cython.cast(cython.int, key_start)
        columns[2 * count + index] = cython.cast(cython.int, key_length)
        columns[3 * count + index] = cython.cast(cython.int, value_start)
        columns[4 * count + index] = cython.cast(cython.int, value_length)
        columns[5 * count + index] = cython.cast(cython.int, headers_start)
        columns[6 * count + index] = cython.cast(cython.int, header_count)
        index += 1
    return (0 if at == end else TOO_MANY), index


def columns(
    payload: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    timestamp_delta: cython.longlong[::1],
    block: cython.int[::1],
) -> tuple[int, int]:
    """Fills timestamp_delta[count] and the seven rows of block[7 * count]; (status, index of the first broken record).

    Rows: offset delta, key start, key length, value start, value length, headers start, header count.
    """
    status: cython.Py_ssize_t
    index: cython.Py_ssize_t
    if not 0 <= start <= end <= len(payload) <= 0x7FFFFFFF:
        raise IndexError("slice outside the buffer")
    if count <= 0:
        return (0 if start == end else TOO_MANY), 0
    if len(timestamp_delta) < count or len(block) < 7 * count:
        raise IndexError("columns shorter than the count")
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
        deltas: cython.pointer[cython.longlong] = cython.address(timestamp_delta[0])
        rows: cython.pointer[cython.int] = cython.address(block[0])
    else:
        data, deltas, rows = payload, timestamp_delta, block
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            status, index = _columns(data, start, end, count, deltas, rows)
    else:
        status, index = _columns(data, start, end, count, deltas, rows)
    return status, index


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.pointer[cython.uchar],
    at: cython.Py_ssize_t,
    data: Bytes,  # noqa: F821
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(out + at, data + start, end - start)
    else:
        out[at : at + end - start] = data[start:end]
    return at + end - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _rewrite(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    keep: Bytes,  # noqa: F821
    keep_all: cython.bint,
    shift: cython.longlong,
    renumber: cython.bint,
    out: cython.pointer[cython.uchar],
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t]:
    """(bytes written, records read), or a status and the index of the first broken record."""
    written: cython.Py_ssize_t = 0
    index: cython.Py_ssize_t = 0
    kept: cython.longlong = 0
    start: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    delta: cython.longlong
    offset_delta: cython.longlong
    body: cython.longlong
    while index < count:
        if at >= end:
            return TOO_FEW, index
        start = at
        at, delta, offset_delta, tail, _, _, _, _, _, _ = read_record(data, start, end)
        if at < 0:
            return at, index
        if keep_all or keep[index] != 0:
            if shift == 0 and (not renumber or offset_delta == kept):
                written = _copy(out, written, data, start, at)
            else:
                if (shift > 0 and delta > INT64_MAX - shift) or (shift < 0 and delta < -INT64_MAX - shift):
                    return BAD_TIMESTAMP, index
                if renumber:
                    offset_delta = kept
                body = 1 + varint_bytes(delta + shift) + varint_bytes(offset_delta) + at - tail
                written = write_varint(out, written, body)
                out[written] = 0
                written = write_varint(out, written + 1, delta + shift)
                written = write_varint(out, written, offset_delta)
                written = _copy(out, written, data, tail, at)
            kept += 1
        index += 1
    return (written if at == end else TOO_MANY), index


def rewrite(
    payload: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    keep: cython.const[cython.uchar][::1],
    keep_all: cython.bint,
    timestamp_shift: cython.longlong,
    renumber: cython.bint,
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Copies the records whose byte in `keep` is not 0 to `out`: (bytes written or a status, records read).

    timestamp_shift is added to each delta; renumber counts the offset deltas from 0. `out` must hold
    end - start + 16 * count bytes (a delta's varint may grow from 1 to 10, the length's and the offset's by 4).
    """
    written: cython.Py_ssize_t
    index: cython.Py_ssize_t
    if not 0 <= start <= end <= len(payload):
        raise IndexError("slice outside the buffer")
    if count < 0 or len(out) < end - start + 16 * count or (len(keep) < count and not keep_all):
        raise IndexError("output or mask too short")
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
        mask: cython.pointer[cython.const[cython.uchar]] = cython.address(keep[0])
        target: cython.pointer[cython.uchar] = cython.address(out[0])
    else:
        data, mask, target = payload, keep, out
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            written, index = _rewrite(data, start, end, count, mask, keep_all, timestamp_shift, renumber, target)
    else:
        written, index = _rewrite(data, start, end, count, mask, keep_all, timestamp_shift, renumber, target)
    return written, index
