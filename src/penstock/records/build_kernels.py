# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that write records from column buffers, laid out as Arrow lays out binary columns.

A column is three buffers: int32 ends (item i lies between ends[i] and ends[i + 1]), data, and a bitmap with bit i set
where item i is not null (empty: no nulls). `size` proves every index against its buffer and says how many
bytes `encode` will write; encode trusts it, so the buffers must not change in between.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.penstock.records.record_kernels import varint_bytes, write_varint
else:
    from penstock.records.record_kernels import varint_bytes, write_varint

TIMESTAMP_MAX = cython.declare(cython.longlong, 1 << 62)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _length(
    ends: cython.const[cython.int][::1], valid: cython.const[cython.uchar][::1], at: cython.Py_ssize_t
) -> cython.int:
    """Length of item `at`, -1 if it is null."""
    if len(valid) != 0 and (valid[at >> 3] >> (at & 7)) & 1 == 0:
        return -1
    return ends[at + 1] - ends[at]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field_bytes(length: cython.int) -> cython.longlong:
    return varint_bytes(length) + (length if length > 0 else 0)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _record_bytes(
    row: cython.Py_ssize_t,
    index: cython.Py_ssize_t,
    timestamp_delta: cython.longlong,
    key_ends: cython.const[cython.int][::1],
    key_valid: cython.const[cython.uchar][::1],
    value_ends: cython.const[cython.int][::1],
    value_valid: cython.const[cython.uchar][::1],
    list_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    content_ends: cython.const[cython.int][::1],
    content_valid: cython.const[cython.uchar][::1],
) -> cython.longlong:
    """Bytes of the record's body, its length varint not counted. A column without ends is null in every row."""
    body: cython.longlong = 1 + varint_bytes(timestamp_delta) + varint_bytes(index)
    header: cython.Py_ssize_t
    body += _field_bytes(_length(key_ends, key_valid, row)) if len(key_ends) != 0 else 1
    body += _field_bytes(_length(value_ends, value_valid, row)) if len(value_ends) != 0 else 1
    if len(list_ends) == 0:
        return body + 1
    body += varint_bytes(list_ends[row + 1] - list_ends[row])
    for header in range(list_ends[row], list_ends[row + 1]):
        body += _field_bytes(name_ends[header + 1] - name_ends[header])
        body += _field_bytes(_length(content_ends, content_valid, header))
    return body


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_sound(
    ends: cython.const[cython.int][::1],
    data_bytes: cython.Py_ssize_t,
    valid: cython.const[cython.uchar][::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> cython.bint:
    """Items [first, first + count) exist, do not shrink, and lie within the data."""
    at: cython.Py_ssize_t
    if first < 0 or count < 0 or first + count + 1 > len(ends) or ends[first] < 0:
        return False
    if len(valid) != 0 and first + count > 8 * len(valid):
        return False
    for at in range(first, first + count):
        if ends[at + 1] < ends[at]:
            return False
    return ends[first + count] <= data_bytes


def size(
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    key_ends: cython.const[cython.int][::1],
    key_data: cython.const[cython.uchar][::1],
    key_valid: cython.const[cython.uchar][::1],
    value_ends: cython.const[cython.int][::1],
    value_data: cython.const[cython.uchar][::1],
    value_valid: cython.const[cython.uchar][::1],
    list_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    name_data: cython.const[cython.uchar][::1],
    content_ends: cython.const[cython.int][::1],
    content_data: cython.const[cython.uchar][::1],
    content_valid: cython.const[cython.uchar][::1],
) -> tuple[int, int]:
    """(bytes that rows [first, first + count) take as records, greatest timestamp); IndexError for unsound columns."""
    total: cython.longlong = 0
    body: cython.longlong
    greatest: cython.longlong = -1
    least: cython.longlong = 0
    index: cython.Py_ssize_t
    if first < 0 or count <= 0 or first + count > len(timestamps):
        raise IndexError("rows outside the timestamps")
    if len(key_ends) != 0 and not _is_sound(key_ends, len(key_data), key_valid, first, count):
        raise IndexError("unsound key column")
    if len(value_ends) != 0 and not _is_sound(value_ends, len(value_data), value_valid, first, count):
        raise IndexError("unsound value column")
    if len(list_ends) != 0:
        if not _is_sound(list_ends, len(name_ends) - 1, content_valid[:0], first, count):
            raise IndexError("unsound headers column")
        headers: cython.Py_ssize_t = list_ends[first + count] - list_ends[first]
        if not _is_sound(name_ends, len(name_data), content_valid[:0], list_ends[first], headers) or not _is_sound(
            content_ends, len(content_data), content_valid, list_ends[first], headers
        ):
            raise IndexError("unsound headers")
    with cython.nogil:
        for index in range(count):
            greatest = max(greatest, timestamps[first + index])
            least = min(least, timestamps[first + index])
            if greatest > TIMESTAMP_MAX or least < -TIMESTAMP_MAX:
                break
            body = _record_bytes(
                first + index, index, timestamps[first + index] - timestamps[first], key_ends, key_valid, value_ends,
                value_valid, list_ends, name_ends, content_ends, content_valid,
            )  # fmt: skip
            total += varint_bytes(body) + body
    if greatest > TIMESTAMP_MAX or least < -TIMESTAMP_MAX:
        raise IndexError("a timestamp beyond 2^62 milliseconds")
    return total, greatest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(
    out: cython.pointer[cython.uchar],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    length: cython.int,
) -> cython.Py_ssize_t:
    """A length and that many bytes, or -1 alone."""
    at = write_varint(out, at, length)
    if length <= 0:
        return at
    if cython.compiled:
        memcpy(out + at, cython.address(data[0]) + start, length)
    else:
        out[at : at + length] = data[start : start + length]
    return at + length


def encode(
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    timestamps: cython.const[cython.longlong][::1],
    key_ends: cython.const[cython.int][::1],
    key_data: cython.const[cython.uchar][::1],
    key_valid: cython.const[cython.uchar][::1],
    value_ends: cython.const[cython.int][::1],
    value_data: cython.const[cython.uchar][::1],
    value_valid: cython.const[cython.uchar][::1],
    list_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    name_data: cython.const[cython.uchar][::1],
    content_ends: cython.const[cython.int][::1],
    content_data: cython.const[cython.uchar][::1],
    content_valid: cython.const[cython.uchar][::1],
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> int:
    """Writes the rows as records from target[at] on; the position after them. size() made room."""
    index: cython.Py_ssize_t
    row: cython.Py_ssize_t
    header: cython.Py_ssize_t
    delta: cython.longlong
    if cython.compiled:
        out: cython.pointer[cython.uchar] = cython.address(target[0])
    else:
        out = target
    with cython.nogil:
        for index in range(count):
            row = first + index
            delta = timestamps[row] - timestamps[first]
            at = write_varint(
                out, at,
                _record_bytes(row, index, delta, key_ends, key_valid, value_ends, value_valid, list_ends, name_ends,
                              content_ends, content_valid),
            )  # fmt: skip
            out[at] = 0
            at = write_varint(out, at + 1, delta)
            at = write_varint(out, at, index)
            if len(key_ends) == 0:
                at = write_varint(out, at, -1)
            else:
                at = _put(out, at, key_data, key_ends[row], _length(key_ends, key_valid, row))
            if len(value_ends) == 0:
                at = write_varint(out, at, -1)
            else:
                at = _put(out, at, value_data, value_ends[row], _length(value_ends, value_valid, row))
            if len(list_ends) == 0:
                at = write_varint(out, at, 0)
                continue
            at = write_varint(out, at, list_ends[row + 1] - list_ends[row])
            for header in range(list_ends[row], list_ends[row + 1]):
                at = _put(out, at, name_data, name_ends[header], name_ends[header + 1] - name_ends[header])
                at = _put(out, at, content_data, content_ends[header], _length(content_ends, content_valid, header))
    return at
