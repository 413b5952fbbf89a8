# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels of the key map: SipHash-2-4 of 128 bits over keys, open addressing, selection of what compaction keeps.

The table is one buffer of unsigned 64-bit words, three a slot: two of hash, then offset + 1; 0 is an empty slot.
Probing is linear. Keys are never stored: two keys of one hash are one key, which for 2^32 keys happens once in
2^65 tables, and cannot be provoked without the seed.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.penstock.records.record_kernels import read_record
else:
    from penstock.records.record_kernels import read_record

RELEASE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 1024)
MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)

# SipHash's starting words: "somepseudorandomlygeneratedbytes".
SIP0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
SIP1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
SIP2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
SIP3 = cython.declare(cython.ulonglong, 0x7465646279746573)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotate(word: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    if cython.compiled:
        return (word << bits) | (word >> (64 - bits))
    return ((word << bits) & MASK64) | (word >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add(first: cython.ulonglong, second: cython.ulonglong) -> cython.ulonglong:
    if cython.compiled:
        return first + second
    return (first + second) & MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _mix(
    v0: cython.ulonglong, v1: cython.ulonglong, v2: cython.ulonglong, v3: cython.ulonglong, rounds: cython.int
) -> tuple[cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong]:
    while rounds > 0:
        v0 = _add(v0, v1)
        v1 = _rotate(v1, 13) ^ v0
        v0 = _rotate(v0, 32)
        v2 = _add(v2, v3)
        v3 = _rotate(v3, 16) ^ v2
        v0 = _add(v0, v3)
        v3 = _rotate(v3, 21) ^ v0
        v2 = _add(v2, v1)
        v1 = _rotate(v1, 17) ^ v2
        v2 = _rotate(v2, 32)
        rounds -= 1
    return v0, v1, v2, v3


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: cython.pointer[cython.const[cython.uchar]],
    start: cython.Py_ssize_t,
    length: cython.Py_ssize_t,
    seed0: cython.ulonglong,
    seed1: cython.ulonglong,
) -> tuple[cython.ulonglong, cython.ulonglong]:
    """SipHash-2-4-128 of data[start:start + length]."""
    v0: cython.ulonglong = seed0 ^ SIP0
    v1: cython.ulonglong = seed1 ^ SIP1 ^ 0xEE
    v2: cython.ulonglong = seed0 ^ SIP2
    v3: cython.ulonglong = seed1 ^ SIP3
    word: cython.ulonglong
    low: cython.ulonglong
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + length
    byte: cython.int
    while end - at >= 8:
        word = 0
        for byte in range(8):
            word |= cython.cast(cython.ulonglong, data[at + byte]) << (8 * byte)
        v3 ^= word
        v0, v1, v2, v3 = _mix(v0, v1, v2, v3, 2)
        v0 ^= word
        at += 8
    word = cython.cast(cython.ulonglong, length & 0xFF) << 56
    for byte in range(cython.cast(cython.int, end - at)):
        word |= cython.cast(cython.ulonglong, data[at + byte]) << (8 * byte)
    v3 ^= word
    v0, v1, v2, v3 = _mix(v0, v1, v2, v3, 2)
    v0 ^= word
    v2 ^= 0xEE
    v0, v1, v2, v3 = _mix(v0, v1, v2, v3, 4)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    v0, v1, v2, v3 = _mix(v0, v1, v2, v3, 4)
    return low, v0 ^ v1 ^ v2 ^ v3


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _find(
    table: cython.pointer[cython.ulonglong], slots: cython.ulonglong, low: cython.ulonglong, high: cython.ulonglong
) -> cython.Py_ssize_t:
    """Word index of the key's slot, or of the empty one where it would go. One slot is always empty."""
    slot: cython.ulonglong = ((low >> 32) * slots) >> 32
    while table[3 * slot + 2] != 0 and (table[3 * slot] != low or table[3 * slot + 1] != high):
        slot += 1
        if slot == slots:
            slot = 0
    return cython.cast(cython.Py_ssize_t, 3 * slot)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_batch(
    data: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    from_offset: cython.longlong,
    table: cython.pointer[cython.ulonglong],
    slots: cython.ulonglong,
    keys_left: cython.Py_ssize_t,
    seed0: cython.ulonglong,
    seed1: cython.ulonglong,
) -> tuple[cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong]:
    """(records taken or a status, keys added, offset of the last record put or -1)."""
    index: cython.Py_ssize_t = 0
    added: cython.Py_ssize_t = 0
    last: cython.longlong = -1
    offset: cython.longlong
    offset_delta: cython.int
    key: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    low: cython.ulonglong
    high: cython.ulonglong
    word: cython.Py_ssize_t
    while index < count:
        at, _, offset_delta, _, key, key_length, _, _, _, _ = read_record(data, at, end)
        if at < 0:
            return at, added, last
        offset = base_offset + offset_delta
        if key_length >= 0 and offset >= from_offset:
            low, high = _hash(data, key, key_length, seed0, seed1)
            word = _find(table, slots, low, high)
            if table[word + 2] == 0:
                if added == keys_left:
                    return index, added, last
                table[word] = low
                table[word + 1] = high
                added += 1
            table[word + 2] = cython.cast(cython.ulonglong, offset + 1)
            last = offset
        index += 1
    return index, added, last


def put_batch(
    payload: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    from_offset: cython.longlong,
    words: cython.ulonglong[::1],
    keys_left: cython.Py_ssize_t,
    seed0: cython.ulonglong,
    seed1: cython.ulonglong,
) -> tuple[int, int, int]:
    """Puts each keyed record at or above from_offset: (records taken or a status, keys added, last offset put)."""
    slots: cython.ulonglong = len(words) // 3
    taken: cython.Py_ssize_t
    added: cython.Py_ssize_t
    last: cython.longlong
    if not 0 <= start <= end <= len(payload) or slots < 2:
        raise IndexError("slice outside the buffer, or no table")
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
        table: cython.pointer[cython.ulonglong] = cython.address(words[0])
    else:
        data, table = payload, words
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            taken, added, last = _put_batch(
                data, start, end, count, base_offset, from_offset, table, slots, keys_left, seed0, seed1
            )
    else:
        taken, added, last = _put_batch(
            data, start, end, count, base_offset, from_offset, table, slots, keys_left, seed0, seed1
        )
    return taken, added, last


def latest(
    key: cython.const[cython.uchar][::1], words: cython.ulonglong[::1], seed0: cython.ulonglong, seed1: cython.ulonglong
) -> int:
    """The key's offset, or -1."""
    low: cython.ulonglong
    high: cython.ulonglong
    slots: cython.ulonglong = len(words) // 3
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(key[0])
        table: cython.pointer[cython.ulonglong] = cython.address(words[0])
    else:
        data, table = key, words
    low, high = _hash(data, 0, len(key), seed0, seed1)
    return cython.cast(cython.longlong, table[_find(table, slots, low, high) + 2]) - 1


def hash_key(key: cython.const[cython.uchar][::1], seed0: cython.ulonglong, seed1: cython.ulonglong) -> tuple[int, int]:
    """The key's two words of hash: for tests against the published vectors."""
    low: cython.ulonglong
    high: cython.ulonglong
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(key[0])
    else:
        data = key
    low, high = _hash(data, 0, len(key), seed0, seed1)
    return low, high


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _select(
    data: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    latest_offset: cython.longlong,
    retain_tombstones: cython.bint,
    table: cython.pointer[cython.ulonglong],
    slots: cython.ulonglong,
    seed0: cython.ulonglong,
    seed1: cython.ulonglong,
    keep: cython.pointer[cython.uchar],
    stats: cython.pointer[cython.longlong],
) -> cython.Py_ssize_t:
    """0 or a status; fills keep and the five numbers that select() describes."""
    index: cython.Py_ssize_t
    delta: cython.longlong
    offset: cython.longlong
    offset_delta: cython.int
    key: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    low: cython.ulonglong
    high: cython.ulonglong
    kept: cython.bint
    for index in range(count):
        at, delta, offset_delta, _, key, key_length, _, value_length, _, _ = read_record(data, at, end)
        if at < 0:
            stats[0] = index
            return at
        offset = base_offset + offset_delta
        if offset > latest_offset:
            kept = True
        elif key_length < 0:
            kept = False
            stats[2] += 1
        else:
            low, high = _hash(data, key, key_length, seed0, seed1)
            kept = offset + 1 >= cython.cast(cython.longlong, table[_find(table, slots, low, high) + 2]) and (
                value_length >= 0 or retain_tombstones
            )
        keep[index] = kept
        if kept:
            if stats[0] == 0 or delta > stats[3]:
                stats[3] = delta
                stats[4] = offset_delta
            stats[0] += 1
            stats[1] += value_length < 0
    return 0


def select(
    payload: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_offset: cython.longlong,
    latest_offset: cython.longlong,
    retain_tombstones: cython.bint,
    words: cython.ulonglong[::1],
    seed0: cython.ulonglong,
    seed1: cython.ulonglong,
    keep: cython.uchar[::1],
) -> tuple[int, int, int, int, int, int]:
    """Fills keep[count] with 1 or 0: (status, kept, tombstones kept, keyless dropped, max timestamp delta, where).

    With a negative status the second number is the index of the broken record.
    """
    slots: cython.ulonglong = len(words) // 3
    status: cython.Py_ssize_t
    if not 0 <= start <= end <= len(payload) or slots < 2 or not 0 <= count <= len(keep):
        raise IndexError("slice outside the buffer, or no table")
    if cython.compiled:
        numbers: cython.longlong[5]
        stats: cython.pointer[cython.longlong] = numbers  # noqa: F821 (a C array, declared above)
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(payload[0])
        table: cython.pointer[cython.ulonglong] = cython.address(words[0])
        mask: cython.pointer[cython.uchar] = cython.address(keep[0])
    else:
        stats, data, table, mask = [0] * 5, payload, words, keep
    stats[0] = stats[1] = stats[2] = stats[3] = stats[4] = 0
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            status = _select(
                data, start, end, count, base_offset, latest_offset, retain_tombstones, table, slots, seed0, seed1,
                mask, stats,
            )  # fmt: skip
    else:
        status = _select(
            data, start, end, count, base_offset, latest_offset, retain_tombstones, table, slots, seed0, seed1,
            mask, stats,
        )  # fmt: skip
    return status, stats[0], stats[1], stats[2], stats[3], stats[4]
