# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels over batch headers and index entries: CRC-32C, scan, patch, search.

Plain Python that Cython compiles; uncompiled it runs the same, some hundred times slower. Bounds checks are
off when compiled, so each function proves its positions before it reads, or says that its caller must.
`batch.py` is the typed face of this module.

The GIL is released only for inputs above RELEASE_BYTES: giving it up costs more than a small batch's
work, and with another thread busy it costs a switch interval.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from crc32c import crc32c as _crc32c_package
    from crc32c import hardware_based

COMPILED = bool(cython.compiled)
if cython.compiled:
    HARDWARE_CRC = bool(penstock_crc32c_start())  # noqa: F821 (declared in kernels.pxd)
else:
    HARDWARE_CRC = bool(hardware_based)

RELEASE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 1024)

# Why a scan stopped; batch.Stop names the same numbers.
COMPLETE = cython.declare(cython.int, 0)
INCOMPLETE = cython.declare(cython.int, 1)
LIMIT = cython.declare(cython.int, 2)
ZEROES = cython.declare(cython.int, 3)
OLD_MAGIC = cython.declare(cython.int, 4)
BAD_MAGIC = cython.declare(cython.int, 5)
BAD_SIZE = cython.declare(cython.int, 6)
BAD_CRC = cython.declare(cython.int, 7)
BAD_COUNT = cython.declare(cython.int, 8)

INT64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

_new_tuple = tuple.__new__


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def uint32_at(data: Bytes, at: cython.Py_ssize_t) -> cython.uint:  # noqa: F821
    return (
        (cython.cast(cython.uint, data[at]) << 24)
        | (cython.cast(cython.uint, data[at + 1]) << 16)
        | (cython.cast(cython.uint, data[at + 2]) << 8)
        | cython.cast(cython.uint, data[at + 3])
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def int32_at(data: Bytes, at: cython.Py_ssize_t) -> cython.int:  # noqa: F821
    value: cython.uint = uint32_at(data, at)
    if cython.compiled:
        return cython.cast(cython.int, value)
    return value - ((value & 0x80000000) << 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def int64_at(data: Bytes, at: cython.Py_ssize_t) -> cython.longlong:  # noqa: F821
    value: cython.ulonglong = (cython.cast(cython.ulonglong, uint32_at(data, at)) << 32) | uint32_at(data, at + 4)
    if cython.compiled:
        return cython.cast(cython.longlong, value)
    return value - ((value & (1 << 63)) << 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def int16_at(data: Bytes, at: cython.Py_ssize_t) -> cython.int:  # noqa: F821
    value: cython.int = (cython.cast(cython.int, data[at]) << 8) | data[at + 1]
    return value - ((value & 0x8000) << 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _crc(
    data: Bytes,  # noqa: F821
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    before: cython.uint = 0,
) -> cython.uint:
    if cython.compiled:
        return penstock_crc32c(before, data + start, end - start)  # noqa: F821
    else:  # noqa: RET505 (the compiler drops this branch whole)
        return _crc32c_package(memoryview(data)[start:end], before)


def crc32c(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t, before: cython.uint = 0
) -> int:
    """CRC-32C of data[start:end], or of more: `before` is that of the bytes that stand before them."""
    result: cython.uint
    if not 0 <= start <= end <= len(data):
        raise IndexError("slice outside the buffer")
    if start == end:
        return before
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            result = _crc(view, start, end, before)
    else:
        result = _crc(view, start, end, before)
    return result


def crc32c_portable(data: cython.const[cython.uchar][::1]) -> int:
    """CRC-32C by tables, whatever the machine offers: for tests."""
    if len(data) == 0:
        return 0
    if cython.compiled:
        return penstock_crc32c_portable(0, cython.address(data[0]), len(data))  # noqa: F821
    else:  # noqa: RET505
        return _crc32c_package(data)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_zero(data: Bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:  # noqa: F821
    at: cython.Py_ssize_t = start
    while at < end and data[at] == 0:
        at += 1
    return at >= end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def check_batch(
    data: Bytes,  # noqa: F821
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    check_crc: cython.bint,
) -> cython.Py_ssize_t:
    """Size of the good batch at `at`, or minus the reason why there is none."""
    left: cython.Py_ssize_t = end - at
    length: cython.Py_ssize_t
    magic: cython.int
    delta: cython.int
    if left < 17:  # the magic byte stands at 16
        return -INCOMPLETE
    length = int32_at(data, at + 8)
    magic = data[at + 16]
    if length == 0 and _is_zero(data, at, end):
        return -ZEROES
    if length < 14:  # below the smallest header of any format
        return -BAD_SIZE
    if magic != 2:
        return -OLD_MAGIC if magic < 2 else -BAD_MAGIC
    if length < 49:
        return -BAD_SIZE
    if left < 12 + length:
        return -INCOMPLETE
    if check_crc and uint32_at(data, at + 17) != _crc(data, at + 21, at + 12 + length):
        return -BAD_CRC
    delta = int32_at(data, at + 23)
    if delta < 0 or int32_at(data, at + 57) < 0 or int64_at(data, at) > INT64_MAX - delta:
        return -BAD_COUNT
    return 12 + length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    data: Bytes,  # noqa: F821
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    check_crc: cython.bint,
    batches_max: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t, cython.int]:
    """Steps over good batches: their number, the end of the last, and why it stopped."""
    at: cython.Py_ssize_t = start
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    while at < end:
        if count == batches_max:
            return count, at, LIMIT
        size = check_batch(data, at, end, check_crc)
        if size <= 0:
            return count, at, cython.cast(cython.int, -size)
        at += size
        count += 1
    return count, at, COMPLETE


@cython.cfunc
def batch_at(batch_class: type, data: Bytes, at: cython.Py_ssize_t) -> object:  # noqa: F821
    base_offset: cython.longlong = int64_at(data, at)
    return _new_tuple(
        batch_class,
        (
            at,
            12 + int32_at(data, at + 8),
            base_offset,
            base_offset + int32_at(data, at + 23),
            int32_at(data, at + 12),
            data[at + 16],
            uint32_at(data, at + 17),
            int16_at(data, at + 21),
            int64_at(data, at + 27),
            int64_at(data, at + 35),
            int64_at(data, at + 43),
            int16_at(data, at + 51),
            int32_at(data, at + 53),
            int32_at(data, at + 57),
        ),
    )


def scan(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    check_crc: cython.bint,
    batches_max: cython.Py_ssize_t,
    batch_class: type,
    scan_class: type,
    stops: tuple,
) -> object:
    """scan_class(batches, end of the last good one, why it stopped) over data[start:end]; end -1 is the buffer's.

    One walk decides without touching a Python object; a second reads the headers it found good. A writer in another
    thread must not change the bytes meanwhile.
    """
    count: cython.Py_ssize_t
    stopped_at: cython.Py_ssize_t
    stop: cython.int
    if end == -1:
        end = len(data)
    if not 0 <= start <= end <= len(data):
        raise IndexError("slice outside the buffer")
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            count, stopped_at, stop = _walk(view, start, end, check_crc, batches_max)
    else:
        count, stopped_at, stop = _walk(view, start, end, check_crc, batches_max)
    batches: list = []
    at: cython.Py_ssize_t = start
    while count > 0:
        batches.append(batch_at(batch_class, view, at))
        at += 12 + int32_at(view, at + 8)
        count -= 1
    return _new_tuple(scan_class, (batches, stopped_at, stops[stop]))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put(data: cython.uchar[::1], at: cython.Py_ssize_t, size: cython.int, value: cython.longlong) -> cython.void:
    """Big-endian, two's complement, `size` bytes."""
    shift: cython.int = 8 * size
    while shift > 0:
        shift -= 8
        data[at] = (value >> shift) & 0xFF
        at += 1


def assigned(
    data: cython.uchar[::1],
    at: cython.Py_ssize_t,
    base_offset: cython.longlong,
    leader_epoch: cython.int,
    timestamp_type: cython.int,
    max_timestamp: cython.longlong,
    batch_class: type,
) -> object:
    """Patches the batch at `at`: offset, epoch, timestamp type (0 or 1) and max timestamp; the batch as it stands then.

    Offset and epoch lie outside the CRC; type and timestamp inside, and the CRC is recomputed only if one changed.
    """
    attributes: cython.int
    size: cython.Py_ssize_t
    crc: cython.uint
    if not 0 <= at <= len(data) - 61:
        raise IndexError("no batch header there")
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    size = 12 + int32_at(view, at + 8)
    if not 61 <= size <= len(data) - at:
        raise IndexError("no whole batch there")
    _put(data, at, 8, base_offset)
    _put(data, at + 12, 4, leader_epoch)
    attributes = (int16_at(view, at + 21) & ~8) | (timestamp_type << 3)
    if attributes != int16_at(view, at + 21) or max_timestamp != int64_at(view, at + 35):
        _put(data, at + 21, 2, attributes)
        _put(data, at + 35, 8, max_timestamp)
        if size > RELEASE_BYTES:
            with cython.nogil:
                crc = _crc(view, at + 21, at + size)
        else:
            crc = _crc(view, at + 21, at + size)
        _put(data, at + 17, 4, crc)
    return batch_at(batch_class, view, at)


def write_header(
    data: cython.uchar[::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    base_offset: cython.longlong,
    leader_epoch: cython.int,
    attributes: cython.int,
    last_offset_delta: cython.int,
    base_timestamp: cython.longlong,
    max_timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.int,
    base_sequence: cython.int,
    record_count: cython.int,
) -> None:
    """Writes the 61 bytes before a payload that already stands at `at + 61`, and the CRC over both."""
    crc: cython.uint
    if at < 0 or not 61 <= size <= len(data) - at:
        raise IndexError("no room for the batch")
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    _put(data, at, 8, base_offset)
    _put(data, at + 8, 4, size - 12)
    _put(data, at + 12, 4, leader_epoch)
    _put(data, at + 16, 1, 2)
    _put(data, at + 21, 2, attributes)
    _put(data, at + 23, 4, last_offset_delta)
    _put(data, at + 27, 8, base_timestamp)
    _put(data, at + 35, 8, max_timestamp)
    _put(data, at + 43, 8, producer_id)
    _put(data, at + 51, 2, producer_epoch)
    _put(data, at + 53, 4, base_sequence)
    _put(data, at + 57, 4, record_count)
    if size > RELEASE_BYTES:
        with cython.nogil:
            crc = _crc(view, at + 21, at + size)
    else:
        crc = _crc(view, at + 21, at + size)
    _put(data, at + 17, 4, crc)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _search(
    data: Bytes,  # noqa: F821
    entries: cython.Py_ssize_t,
    entry_bytes: cython.Py_ssize_t,
    target: cython.longlong,
) -> cython.Py_ssize_t:
    """Largest slot whose key (4 bytes in an 8-byte entry, else 8) is at or below the target, or -1.

    The last 8 KiB are searched first: followers and consumers near the end then touch the same few pages
    every time, however large the index (KAFKA-6432).
    """
    low: cython.Py_ssize_t = -1  # invariant: key(low) <= target < key(high)
    high: cython.Py_ssize_t = entries
    warm: cython.Py_ssize_t = entries - 1 - 8192 // entry_bytes
    middle: cython.Py_ssize_t
    key: cython.longlong
    while high - low > 1:
        if warm >= 0:
            middle = warm
            warm = -1
        else:
            middle = (low + high) // 2
        if entry_bytes == 8:
            key = int32_at(data, middle * 8)
        else:
            key = int64_at(data, middle * entry_bytes)
        if key <= target:
            low = middle
        else:
            high = middle
    return low


def search_offset_index(
    data: cython.const[cython.uchar][::1], entries: cython.Py_ssize_t, relative_target: cython.longlong
) -> int:
    """Largest slot of an offset index (int32 relative offset, int32 position) at or below the target, or -1."""
    if not 0 <= entries <= len(data) // 8:
        raise IndexError("more entries than the buffer holds")
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    return _search(view, entries, 8, relative_target)


def search_time_index(
    data: cython.const[cython.uchar][::1], entries: cython.Py_ssize_t, timestamp: cython.longlong
) -> int:
    """Largest slot of a time index (int64 timestamp, int32 relative offset) at or below the timestamp, or -1."""
    if not 0 <= entries <= len(data) // 12:
        raise IndexError("more entries than the buffer holds")
    if cython.compiled:
        view: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        view = data
    return _search(view, entries, 12, timestamp)
