"""A Produce request of one batch for one partition, read and answered without an object for each of its parts.

What is anything else (another API or version, several partitions, a transactional id, tagged fields, a null, what ends too
early) is left to `protocol.headers` and `protocol.produce`, which find out what it is. The answer's bytes are those that
`protocol.produce` gives: the tests compare.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

NAME_BYTES_MAX = cython.declare(cython.Py_ssize_t, 126)
"""A compact string's length then is one byte. Longer names go the long way."""
BATCH_BYTES_MIN = cython.declare(cython.Py_ssize_t, 62)
LOW = cython.declare(cython.int, 3)
HIGH = cython.declare(cython.int, 13)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _int16(data: cython.pointer[cython.const[cython.uchar]], at: cython.Py_ssize_t) -> cython.int:
    high: cython.int = data[at]
    return (high - 256 if high > 127 else high) * 256 + data[at + 1]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.pointer[cython.const[cython.uchar]], at: cython.Py_ssize_t) -> cython.longlong:
    high: cython.longlong = _int16(data, at)
    return high * 65536 + data[at + 2] * 256 + data[at + 3]


@cython.cfunc
def _found(
    frame: bytes,
    version: cython.int,
    name_start: cython.Py_ssize_t,
    topic_start: cython.Py_ssize_t,
    topic_end: cython.Py_ssize_t,
    partition: cython.longlong,
    acks: cython.int,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    timeout_ms: cython.longlong,
) -> object:
    data: cython.pointer[cython.const[cython.uchar]] = frame
    topic: object = frame[name_start:topic_end]
    if version < 13:
        try:
            topic = topic.decode()
        except UnicodeDecodeError:
            return None
    return topic, partition, acks, start, end, version, _int32(data, 4), topic_start, topic_end, timeout_ms


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _body_start(
    data: cython.pointer[cython.const[cython.uchar]], size: cython.Py_ssize_t, version: cython.int
) -> cython.Py_ssize_t:
    """Where the body begins, 0 where the header is not plain: a client id in ASCII, no tagged fields."""
    length: cython.int = _int16(data, 8)
    at: cython.Py_ssize_t = 10
    end: cython.Py_ssize_t = 10 + (0 if length == -1 else length)
    if length < -1 or end >= size:
        return 0
    while at < end:
        if data[at] > 0x7F:
            return 0
        at += 1
    if version < 9:
        return at
    return at + 1 if data[at] == 0 else 0


def short_request(frame: bytes) -> object:
    """(topic's name, or its id from version 13 on, partition, acks, where its batch begins and ends, and for the answer:
    version, correlation id, where the topic begins and ends; how long it may wait), or None."""
    size: cython.Py_ssize_t = len(frame)
    data: cython.pointer[cython.const[cython.uchar]] = frame
    at: cython.Py_ssize_t
    version: cython.int
    length: cython.longlong
    acks: cython.int
    partition: cython.longlong
    timeout_ms: cython.longlong
    topic_start: cython.Py_ssize_t
    topic_end: cython.Py_ssize_t
    shift: cython.int = 0
    if size < 10 or data[0] != 0 or data[1] != 0:
        return None
    version = _int16(data, 2)
    if version < LOW or version > HIGH:
        return None
    at = _body_start(data, size, version)
    if at == 0 or size - at < 24:
        return None
    if version < 9:
        if data[at] != 0xFF or _int32(data, at + 8) != 1:
            return None
        acks = _int16(data, at + 2)
        timeout_ms = _int32(data, at + 4)
        topic_start = at + 12
        length = _int16(data, topic_start)
        topic_end = topic_start + 2 + length
        if not 0 < length <= NAME_BYTES_MAX or topic_end + 12 > size or _int32(data, topic_end) != 1:
            return None
        partition = _int32(data, topic_end + 4)
        length = _int32(data, topic_end + 8)
        at = topic_end + 12
        if length < BATCH_BYTES_MIN or at + length != size:
            return None
        return _found(frame, version, topic_start + 2, topic_start, topic_end, partition, acks, at, size, timeout_ms)
    if data[at] != 0 or data[at + 7] != 2:
        return None
    acks = _int16(data, at + 1)
    timeout_ms = _int32(data, at + 3)
    topic_start = at + 8
    topic_end = topic_start + (16 if version >= 13 else data[topic_start])
    if topic_end - topic_start < 2 or topic_end - topic_start > NAME_BYTES_MAX + 1 or topic_end + 8 > size:
        return None
    if data[topic_end] != 2:
        return None
    partition = _int32(data, topic_end + 1)
    at = topic_end + 5
    length = 0
    while True:
        if at == size or shift > 28:
            return None
        length |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
        shift += 7
    length -= 1
    # Behind the batch stand the tagged fields of the partition, the topic and the request: none of each.
    if length < BATCH_BYTES_MIN or at + length + 3 != size or data[size - 3] | data[size - 2] | data[size - 1] != 0:
        return None
    name_start: cython.Py_ssize_t = topic_start + (version < 13)
    return _found(frame, version, name_start, topic_start, topic_end, partition, acks, at, size - 3, timeout_ms)


@cython.cfunc
@cython.exceptval(check=False)
def _put(
    out: cython.pointer[cython.uchar], at: cython.Py_ssize_t, size: cython.int, value: cython.longlong
) -> cython.Py_ssize_t:
    """Big-endian, two's complement, `size` bytes; where they end."""
    shift: cython.int = 8 * size
    while shift > 0:
        shift -= 8
        out[at] = (value >> shift) & 0xFF
        at += 1
    return at


def short_answer(frame: bytes, asked: tuple, base_offset: cython.longlong, log_start_offset: cython.longlong) -> bytes:
    """The whole frame of the answer to what `short_request` read: the topic as it stands in the request, and no error."""
    at: cython.Py_ssize_t = 4
    partition: cython.longlong = asked[1]
    version: cython.int = asked[5]
    correlation_id: cython.longlong = asked[6]
    topic_start: cython.Py_ssize_t = asked[7]
    topic_end: cython.Py_ssize_t = asked[8]
    is_flexible: cython.bint = version >= 9
    if cython.compiled:
        room: cython.uchar[256]
        out: cython.pointer[cython.uchar] = room  # noqa: F821 (a C array, declared above)
        given: cython.pointer[cython.const[cython.uchar]] = frame
    else:
        out = bytearray(256)
    at = _put(out, at, 4, correlation_id)
    at = _put(out, at, 2, 2) if is_flexible else _put(out, at, 4, 1)  # the header's tagged fields: none; one topic
    if cython.compiled:
        memcpy(out + at, given + topic_start, topic_end - topic_start)
    else:
        out[at : at + topic_end - topic_start] = frame[topic_start:topic_end]
    at += topic_end - topic_start
    at = _put(out, at, 1, 2) if is_flexible else _put(out, at, 4, 1)
    at = _put(out, at, 4, partition)
    at = _put(out, at, 2, 0)
    at = _put(out, at, 8, base_offset)
    at = _put(out, at, 8, -1)
    if version >= 5:
        at = _put(out, at, 8, log_start_offset)
    if is_flexible:
        at = _put(
            out, at, 4, 0x01000000
        )  # no record errors, no message, no tagged fields of the partition and the topic
    elif version == 8:
        at = _put(out, at, 6, 0xFFFF)  # no record errors, no message
    at = _put(out, at, 5 if is_flexible else 4, 0)  # not throttled
    _put(out, 0, 4, at - 4)
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, out), at) if cython.compiled else bytes(out[:at])
