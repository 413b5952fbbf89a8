# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that copy records into Arrow's buffers: offsets, data and validity bits, one row a record.

A group is many batches' payloads within one buffer, described by seven numbers each (see GROUP_FIELDS in arrow.py):
start, end, record count, base offset, base timestamp, timestamp type, log append time.
`bounds` says which records are wanted: offsets from, to (exclusive), timestamps from, to (inclusive, microseconds).
`state` carries the fill level from call to call: rows, key bytes, value bytes, null keys, null values, headers,
header key bytes, header value bytes, null header values; the caller has sized every buffer for the worst case.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.penstock.records.record_kernels import read_record, read_varint
else:
    from penstock.records.record_kernels import read_record, read_varint

INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
MILLIS_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF // 1000)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _micros(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """Milliseconds to microseconds; what does not fit goes to the nearest that does."""
    millis: cython.longlong
    if delta > 0 and base > INT64_MAX - delta:
        millis = MILLIS_MAX
    elif delta < 0 and base < -INT64_MAX - 1 - delta:
        millis = -MILLIS_MAX
    else:
        millis = min(max(base + delta, -MILLIS_MAX), MILLIS_MAX)
    return millis * 1000


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_wanted(
    bounds: cython.pointer[cython.const[cython.longlong]], offset: cython.longlong, micros: cython.longlong
) -> cython.bint:
    return bounds[0] <= offset < bounds[1] and bounds[2] <= micros <= bounds[3]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _copy(
    out: cython.pointer[cython.uchar],
    at: cython.longlong,
    data: cython.pointer[cython.const[cython.uchar]],
    start: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
) -> cython.longlong:
    if cython.compiled:
        memcpy(out + at, data + start, length)
    else:
        out[at : at + length] = data[start : start + length]
    return at + length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_batch(
    data: cython.pointer[cython.const[cython.uchar]],
    batch: cython.pointer[cython.const[cython.longlong]],
    at_batch: cython.Py_ssize_t,
    bounds: cython.pointer[cython.const[cython.longlong]],
    offsets: cython.pointer[cython.longlong],
    timestamps: cython.pointer[cython.longlong],
    types: cython.pointer[cython.int],
    key_ends: cython.pointer[cython.int],
    key_data: cython.pointer[cython.uchar],
    key_valid: cython.pointer[cython.uchar],
    value_ends: cython.pointer[cython.int],
    value_data: cython.pointer[cython.uchar],
    value_valid: cython.pointer[cython.uchar],
    state: cython.pointer[cython.longlong],
) -> cython.Py_ssize_t:
    """0 or a status. key_ends[0] and value_ends[0] are 0 and stay so: row r ends at [r + 1]."""
    at: cython.Py_ssize_t = batch[at_batch]
    end: cython.Py_ssize_t = batch[at_batch + 1]
    count: cython.Py_ssize_t = batch[at_batch + 2]
    base_offset: cython.longlong = batch[at_batch + 3]
    base_timestamp: cython.longlong = batch[at_batch + 4]
    timestamp_type: cython.int = cython.cast(cython.int, batch[at_batch + 5])
    append_time: cython.longlong = batch[at_batch + 6]
    row: cython.longlong = state[0]
    key_end: cython.longlong = state[1]
    value_end: cython.longlong = state[2]
    key: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    delta: cython.longlong
    micros: cython.longlong
    offset_delta: cython.int
    while count > 0:
        if at >= end:
            return -8
        at, delta, offset_delta, _, key, key_length, value, value_length, _, header_count = read_record(data, at, end)
        if at < 0:
            return at
        count -= 1
        micros = _micros(append_time, 0) if timestamp_type == 1 else _micros(base_timestamp, delta)
        if not _is_wanted(bounds, base_offset + offset_delta, micros):
            continue
        offsets[row] = base_offset + offset_delta
        timestamps[row] = micros
        types[row] = timestamp_type
        if key_length >= 0:
            key_end = _copy(key_data, key_end, data, key, key_length)
            key_valid[row >> 3] |= 1 << (row & 7)
        else:
            state[3] += 1
        if value_length >= 0:
            value_end = _copy(value_data, value_end, data, value, value_length)
            value_valid[row >> 3] |= 1 << (row & 7)
        else:
            state[4] += 1
        row += 1
        key_ends[row] = cython.cast(cython.int, key_end)
        value_ends[row] = cython.cast(cython.int, value_end)
        state[5] += header_count
    state[0] = row
    state[1] = key_end
    state[2] = value_end
    return 0 if at == end else -9


def fill(
    payload: cython.const[cython.uchar][::1],
    group: cython.const[cython.longlong][::1],
    bounds: cython.const[cython.longlong][::1],
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    types: cython.int[::1],
    key_ends: cython.int[::1],
    key_data: cython.uchar[::1],
    key_valid: cython.uchar[::1],
    value_ends: cython.int[::1],
    value_data: cython.uchar[::1],
    value_valid: cython.uchar[::1],
    state: cython.longlong[::1],
) -> tuple[int, int]:
    """Appends the group's records within the bounds: (status, index of the broken batch)."""
    batches: cython.Py_ssize_t = len(group) // 7
    index: cython.Py_ssize_t = 0
    status: cython.Py_ssize_t = 0
    _prove(payload, group, bounds, offsets, timestamps, types, key_ends, key_data, key_valid, value_ends, value_data,
           value_valid, state)  # fmt: skip
    if cython.compiled:
        with cython.nogil:
            while index < batches:
                status = _fill_batch(
                    cython.address(payload[0]), cython.address(group[0]), 7 * index, cython.address(bounds[0]),
                    cython.address(offsets[0]), cython.address(timestamps[0]), cython.address(types[0]),
                    cython.address(key_ends[0]), cython.address(key_data[0]), cython.address(key_valid[0]),
                    cython.address(value_ends[0]), cython.address(value_data[0]), cython.address(value_valid[0]),
                    cython.address(state[0]),
                )  # fmt: skip
                if status < 0:
                    break
                index += 1
    else:
        while index < batches:
            status = _fill_batch(
                payload, group, 7 * index, bounds, offsets, timestamps, types, key_ends, key_data,
                key_valid, value_ends, value_data, value_valid, state,
            )  # fmt: skip
            if status < 0:
                break
            index += 1
    return status, index


@cython.cfunc
def _prove(
    payload: cython.const[cython.uchar][::1],
    group: cython.const[cython.longlong][::1],
    bounds: cython.const[cython.longlong][::1],
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    types: cython.int[::1],
    key_ends: cython.int[::1],
    key_data: cython.uchar[::1],
    key_valid: cython.uchar[::1],
    value_ends: cython.int[::1],
    value_data: cython.uchar[::1],
    value_valid: cython.uchar[::1],
    state: cython.longlong[::1],
) -> object:
    """Raises unless the group lies within the payload, and the worst case of it within the buffers."""
    rows: cython.longlong = state[0]
    data_bytes: cython.longlong = max(state[1], state[2])
    at: cython.Py_ssize_t
    for at in range(0, len(group), 7):
        if not 0 <= group[at] <= group[at + 1] <= len(payload) or group[at + 2] < 0:
            raise IndexError("slice outside the buffer")
        rows += group[at + 2]
        data_bytes += group[at + 1] - group[at]
    if (
        rows > min(len(offsets), len(timestamps), len(types), len(key_ends) - 1, len(value_ends) - 1)
        or rows > 8 * min(len(key_valid), len(value_valid))
        or data_bytes > min(len(key_data), len(value_data))
        or data_bytes > 0x7FFFFFFF
        or len(state) < 9
        or len(bounds) < 4
    ):
        raise IndexError("columns too short")
    return None


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _fill_headers(
    data: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    header: cython.longlong,
    key_ends: cython.pointer[cython.int],
    key_data: cython.pointer[cython.uchar],
    value_ends: cython.pointer[cython.int],
    value_data: cython.pointer[cython.uchar],
    value_valid: cython.pointer[cython.uchar],
    state: cython.pointer[cython.longlong],
) -> cython.longlong:
    """Copies one record's headers, already known to be well-formed; the number of headers so far."""
    length: cython.longlong
    limit: cython.Py_ssize_t = at + 0x7FFFFFFF
    while count > 0:
        at, length = read_varint(data, at, limit, 32)
        state[6] = _copy(key_data, state[6], data, at, length)
        at, length = read_varint(data, at + length, limit, 32)
        if length >= 0:
            state[7] = _copy(value_data, state[7], data, at, length)
            value_valid[header >> 3] |= 1 << (header & 7)
            at += length
        else:
            state[8] += 1
        header += 1
        key_ends[header] = cython.cast(cython.int, state[6])
        value_ends[header] = cython.cast(cython.int, state[7])
        count -= 1
    return header


def fill_headers(
    payload: cython.const[cython.uchar][::1],
    group: cython.const[cython.longlong][::1],
    bounds: cython.const[cython.longlong][::1],
    row: cython.longlong,
    header: cython.longlong,
    list_ends: cython.int[::1],
    list_valid: cython.uchar[::1],
    key_ends: cython.int[::1],
    key_data: cython.uchar[::1],
    value_ends: cython.int[::1],
    value_data: cython.uchar[::1],
    value_valid: cython.uchar[::1],
    state: cython.longlong[::1],
) -> tuple[int, int]:
    """Appends the headers of the rows that fill() appended from the same group: (rows, headers) so far.

    Only for groups that fill() took without an error; the buffers have its counts' sizes.
    """
    batch: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    start: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    delta: cython.longlong
    micros: cython.longlong
    offset_delta: cython.int
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
        keys: cython.pointer[cython.int] = cython.address(key_ends[0])
        key_bytes: cython.pointer[cython.uchar] = cython.address(key_data[0])
        values: cython.pointer[cython.int] = cython.address(value_ends[0])
        value_bytes: cython.pointer[cython.uchar] = cython.address(value_data[0])
        valid: cython.pointer[cython.uchar] = cython.address(value_valid[0])
        numbers: cython.pointer[cython.longlong] = cython.address(state[0])
        limits: cython.pointer[cython.const[cython.longlong]] = cython.address(bounds[0])
    else:
        data, keys, key_bytes, values, value_bytes = payload, key_ends, key_data, value_ends, value_data
        valid, numbers, limits = value_valid, state, bounds
    with cython.nogil:
        for batch in range(0, len(group), 7):
            at = group[batch]
            end = group[batch + 1]
            count = group[batch + 2]
            while count > 0:
                at, delta, offset_delta, _, _, _, _, _, start, header_count = read_record(data, at, end)
                count -= 1
                micros = _micros(group[batch + 6], 0) if group[batch + 5] == 1 else _micros(group[batch + 4], delta)
                if not _is_wanted(limits, group[batch + 3] + offset_delta, micros):
                    continue
                if header_count > 0:
                    header = _fill_headers(
                        data, start, header_count, header, keys, key_bytes, values, value_bytes, valid, numbers
                    )
                    list_valid[row >> 3] |= 1 << (row & 7)
                row += 1
                list_ends[row] = cython.cast(cython.int, header)
    return row, header
