# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernel of a produce request: nearly all batches are plain and good, and one call says so.

What is anything else, compressed or wrong, is left to `storage.append`, which finds out what it is.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.penstock.records.kernels import batch_at, check_batch, int16_at, int32_at, int64_at
    from cython.cimports.penstock.records.record_kernels import validate_records
else:
    from penstock.records.kernels import batch_at, check_batch, int16_at, int32_at, int64_at
    from penstock.records.record_kernels import validate_records

RELEASE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 1024)

# Compressed, control, stamped by a broker: bits of a batch's attributes.
NOT_PLAIN = cython.declare(cython.int, 0x07 | 0x08 | 0x20)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _good(
    data: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    bytes_max: cython.Py_ssize_t,
    require_keys: cython.bint,
    is_client: cython.bint,
    summary: cython.pointer[cython.longlong],
) -> cython.Py_ssize_t:
    """The size of the batch at `at` where it is plain and nothing is amiss, else 0; fills the summary of its records."""
    size: cython.Py_ssize_t = check_batch(data, at, end, True)
    count: cython.Py_ssize_t
    if size <= 0 or size > bytes_max or (int16_at(data, at + 21) & NOT_PLAIN) != 0:
        return 0
    count = int32_at(data, at + 57)
    if is_client:
        if size != end - at or int64_at(data, at) != 0 or count <= 0 or int32_at(data, at + 23) + 1 != count:
            return 0
        if int64_at(data, at + 43) >= 0 and int32_at(data, at + 53) < 0:
            return 0
    if validate_records(data, at + 61, at + size, count, int64_at(data, at + 27), oldest_ms, newest_ms, summary) != 0:
        return 0
    if summary[5] != 0 or summary[7] == 0 or (require_keys and summary[4] != 0):
        return 0
    return size


def plain_batches(
    records: cython.const[cython.uchar][::1],
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    bytes_max: cython.Py_ssize_t,
    require_keys: cython.bint,
    is_client: cython.bint,
    batch_class: type,
) -> object:
    """(the batches, the greatest timestamp of each) where `records` is nothing but plain, good batches; else None.

    A client's are exactly one, from offset 0, without gaps, with a sequence where there is a producer.
    """
    end: cython.Py_ssize_t = len(records)
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    batches: list = []
    newest: list = []
    if end < 61:
        return None
    if cython.compiled:
        numbers: cython.longlong[9]
        summary: cython.pointer[cython.longlong] = numbers  # noqa: F821 (a C array, declared above)
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(records[0])
    else:
        summary = [0] * 9
        data = records
    while at < end:
        if end - at > RELEASE_BYTES:
            with cython.nogil:
                size = _good(data, at, end, oldest_ms, newest_ms, bytes_max, require_keys, is_client, summary)
        else:
            size = _good(data, at, end, oldest_ms, newest_ms, bytes_max, require_keys, is_client, summary)
        if size == 0:
            return None
        batches.append(batch_at(batch_class, data, at))
        newest.append(summary[1])
        at += size
    return batches, newest


@cython.cfunc
@cython.exceptval(check=False)
def _put(
    out: cython.pointer[cython.uchar], at: cython.Py_ssize_t, size: cython.int, value: cython.longlong
) -> cython.void:
    """Big-endian, two's complement, `size` bytes."""
    shift: cython.int = 8 * size
    while shift > 0:
        shift -= 8
        out[at] = (value >> shift) & 0xFF
        at += 1


def placed_batch(
    frame: bytes,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    oldest_ms: cython.longlong,
    newest_ms: cython.longlong,
    bytes_max: cython.Py_ssize_t,
    require_keys: cython.bint,
    base_offset: cython.longlong,
    leader_epoch: cython.int,
    batch_class: type,
) -> object:
    """A client's one batch at frame[start:end], as it stands in the log, where it is plain, good and of no transaction.

    (its bytes with offset and epoch set, last offset, greatest timestamp, the batch where it has a producer or None), or
    None where it is anything else: also where its header claims another greatest timestamp than its records have.
    """
    size: cython.Py_ssize_t = end - start
    placed: bytes
    if start < 0 or size < 61 or end > len(frame):
        return None
    if cython.compiled:
        numbers: cython.longlong[9]
        summary: cython.pointer[cython.longlong] = numbers  # noqa: F821 (a C array, declared above)
        data: cython.pointer[cython.const[cython.uchar]] = frame
        out: cython.pointer[cython.uchar]
    else:
        summary = [0] * 9
        data = frame
    if int16_at(data, start + 21) != 0:
        return None
    if _good(data, start, end, oldest_ms, newest_ms, bytes_max, require_keys, True, summary) == 0:
        return None
    if summary[1] != int64_at(data, start + 35):
        return None
    if cython.compiled:
        placed = PyBytes_FromStringAndSize(cython.cast(cython.p_char, data) + start, size)
        out = cython.cast(cython.pointer[cython.uchar], PyBytes_AS_STRING(placed))
        _put(out, 0, 8, base_offset)
        _put(out, 12, 4, leader_epoch)
    else:
        copied = bytearray(frame[start:end])
        _put(copied, 0, 8, base_offset)
        _put(copied, 12, 4, leader_epoch)
        placed = bytes(copied)
    batch: object = None
    if int64_at(data, start + 43) >= 0:
        data = placed
        batch = batch_at(batch_class, data, 0)
        start = 0
    return placed, base_offset + int32_at(data, start + 23), summary[1], batch
