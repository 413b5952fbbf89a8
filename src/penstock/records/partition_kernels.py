# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that choose partitions by key, as Kafka's Java client does: murmur2, for one key or a column of them."""

from __future__ import annotations

import cython

MULTIPLIER = cython.declare(cython.uint, 0x5BD1E995)
SEED = cython.declare(cython.uint, 0x9747B28C)
MASK = cython.declare(cython.uint, 0xFFFFFFFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _times(word: cython.uint) -> cython.uint:
    return (word * MULTIPLIER) & MASK


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _murmur2(
    data: cython.pointer[cython.const[cython.uchar]], start: cython.Py_ssize_t, length: cython.Py_ssize_t
) -> cython.uint:
    mixed: cython.uint = (SEED ^ cython.cast(cython.uint, length)) & MASK
    word: cython.uint
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + (length & ~3)
    rest: cython.Py_ssize_t = length & 3
    while at < end:
        word = data[at]
        word |= cython.cast(cython.uint, data[at + 1]) << 8
        word |= cython.cast(cython.uint, data[at + 2]) << 16
        word |= cython.cast(cython.uint, data[at + 3]) << 24
        word = _times(word)
        word = _times(word ^ (word >> 24))
        mixed = _times(mixed) ^ word
        at += 4
    if rest:
        if rest == 3:
            mixed ^= cython.cast(cython.uint, data[at + 2]) << 16
        if rest >= 2:
            mixed ^= cython.cast(cython.uint, data[at + 1]) << 8
        mixed = _times(mixed ^ data[at])
    mixed = _times(mixed ^ (mixed >> 13))
    return mixed ^ (mixed >> 15)


def murmur2(key: cython.const[cython.uchar][::1]) -> int:
    """Unsigned, 32 bits."""
    if len(key) == 0:
        empty: cython.uchar[1] = [0]
        return _murmur2(empty, 0, 0)
    if cython.compiled:
        return _murmur2(cython.address(key[0]), 0, len(key))
    return _murmur2(key, 0, len(key))


def choose(
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    key_ends: cython.const[cython.int][::1],
    key_data: cython.const[cython.uchar][::1],
    key_valid: cython.const[cython.uchar][::1],
    partitions: cython.int,
    target: cython.int[::1],
) -> None:
    """Fills `target` with the partitions of the keys [first, first + count); -1 where a key is null.

    Columns as in build_kernels: an empty bitmap means no nulls, empty ends mean that every key is null.
    """
    row: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    if first < 0 or count < 0 or partitions <= 0 or len(target) < count:
        raise IndexError("slice outside the buffer")
    if len(key_ends) == 0:
        for slot in range(count):
            target[slot] = -1
        return
    if len(key_ends) <= first + count or (len(key_valid) > 0 and 8 * len(key_valid) < first + count):
        raise IndexError("columns too short")
    for slot in range(count):
        row = first + slot
        if len(key_valid) > 0 and not (key_valid[row >> 3] >> (row & 7)) & 1:
            target[slot] = -1
            continue
        if not 0 <= key_ends[row] <= key_ends[row + 1] <= len(key_data):
            raise IndexError("a key lies outside its data")
        if cython.compiled and len(key_data) > 0:
            target[slot] = cython.cast(
                cython.int,
                (_murmur2(cython.address(key_data[0]), key_ends[row], key_ends[row + 1] - key_ends[row]) & 0x7FFFFFFF)
                % cython.cast(cython.uint, partitions),
            )
        else:
            target[slot] = (murmur2(key_data[key_ends[row] : key_ends[row + 1]]) & 0x7FFFFFFF) % partitions
