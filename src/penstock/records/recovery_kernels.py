# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernel of recovery: one call walks a stretch of a segment, checks it, and collects what has to be written anew.

For each good batch, in one pass and without the GIL: its CRC and offsets; its entries of both indexes, by the rule of
`storage.segment.Indexer`; the leader epoch that begins with it; and of its producer what a replay needs: the first batch
of each transaction, every end marker, and the last five batches. All else that a producer sent changes nothing that
lasts, and stays unsaid. Outputs are buffers of the caller's; where one is full the walk stops (LIMIT), and goes on
with the next call. `storage.harvest` is the typed face of this module.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.penstock.records.kernels import check_batch, int16_at, int32_at, int64_at
    from cython.cimports.penstock.records.record_kernels import read_record
else:
    from penstock.records.kernels import check_batch, int16_at, int32_at, int64_at
    from penstock.records.record_kernels import read_record

RELEASE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 1024)
INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)

# Why a walk stopped, beside the numbers of kernels.py; storage.harvest.OrderStop names the same.
COMPLETE = cython.declare(cython.int, 0)
LIMIT = cython.declare(cython.int, 2)
OUT_OF_ORDER = cython.declare(cython.int, 9)
OVERFLOW = cython.declare(cython.int, 10)
BAD_MARKER = cython.declare(cython.int, 11)

# Numbers that one call leaves to the next.
EXPECTED = cython.declare(cython.int, 0)  # offset
SINCE = cython.declare(cython.int, 1)  # bytes since the last index entry
LARGEST = cython.declare(cython.int, 2)  # timestamp so far
LARGEST_AT = cython.declare(cython.int, 3)  # last offset of the first batch that reached it
NEWEST = cython.declare(cython.int, 4)  # timestamp of the last time entry
EPOCH = cython.declare(cython.int, 5)  # leader's, the highest so far
PRODUCERS = cython.declare(cython.int, 6)  # in the table
STATE_NUMBERS = 7

# A producer in the table: -1 - id (0 is an empty slot), batches seen, whether its transaction is known to be open, and
# its last five notes. A note: base and last offset, attributes, max timestamp, producer id and epoch, base sequence, how
# a transaction ended (-1 no marker, 0 aborted, 1 committed), coordinator epoch.
NOTE = cython.declare(cython.Py_ssize_t, 9)
KEPT = cython.declare(cython.Py_ssize_t, 5)
SLOT = cython.declare(cython.Py_ssize_t, 48)
NOTE_NUMBERS = 9
KEPT_NOTES = 5
SLOT_NUMBERS = 48


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put32(out: cython.pointer[cython.uchar], at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Big-endian; the position after it."""
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF
    return at + 4


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _marker(
    data: cython.pointer[cython.const[cython.uchar]], at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> tuple[cython.int, cython.longlong]:
    """(1 committed, 0 aborted, -1 a control batch that ends nothing, -2 one that cannot be read; coordinator epoch)."""
    end: cython.Py_ssize_t = at + size
    stop: cython.Py_ssize_t
    key: cython.Py_ssize_t
    key_length: cython.Py_ssize_t
    value: cython.Py_ssize_t
    value_length: cython.Py_ssize_t
    kind: cython.int
    if int32_at(data, at + 57) == 0:
        return -1, -1
    stop, _, _, _, key, key_length, value, value_length, _, _ = read_record(data, at + 61, end)
    if stop != end or key_length < 4 or int16_at(data, key) < 0:
        return -2, -1
    kind = int16_at(data, key + 2)
    if kind != 0 and kind != 1:
        return -1, -1
    if value_length < 6 or int16_at(data, value) < 0:
        return -2, -1
    return kind, int32_at(data, value + 2)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _slot_of(
    table: cython.pointer[cython.longlong], slots: cython.Py_ssize_t, key: cython.longlong
) -> cython.Py_ssize_t:
    """Where the producer stands in the table, or the empty slot where it would."""
    hashed: cython.ulonglong
    if cython.compiled:
        hashed = cython.cast(cython.ulonglong, key) * GOLDEN
    else:
        hashed = ((key & 0xFFFFFFFFFFFFFFFF) * GOLDEN) & 0xFFFFFFFFFFFFFFFF
    slot: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, hashed >> 33) & (slots - 1)
    while table[slot * SLOT] != 0 and table[slot * SLOT] != key:
        slot = (slot + 1) & (slots - 1)
    return slot * SLOT


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _note(
    data: cython.pointer[cython.const[cython.uchar]],
    at: cython.Py_ssize_t,
    ending: cython.int,
    coordinator_epoch: cython.longlong,
    out: cython.pointer[cython.longlong],
    to: cython.Py_ssize_t,
) -> cython.void:
    out[to] = int64_at(data, at)
    out[to + 1] = int64_at(data, at) + int32_at(data, at + 23)
    out[to + 2] = int16_at(data, at + 21)
    out[to + 3] = int64_at(data, at + 35)
    out[to + 4] = int64_at(data, at + 43)
    out[to + 5] = int16_at(data, at + 51)
    out[to + 6] = int32_at(data, at + 53)
    out[to + 7] = ending
    out[to + 8] = coordinator_epoch


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _collect(
    data: cython.pointer[cython.const[cython.uchar]],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    position: cython.longlong,
    base_offset: cython.longlong,
    last_offset_max: cython.longlong,
    producers_from: cython.longlong,
    interval: cython.longlong,
    state: cython.pointer[cython.longlong],
    offset_entries: cython.pointer[cython.uchar],
    time_entries: cython.pointer[cython.uchar],
    index_entries_max: cython.Py_ssize_t,
    epochs: cython.pointer[cython.longlong],
    epochs_max: cython.Py_ssize_t,
    events: cython.pointer[cython.longlong],
    events_max: cython.Py_ssize_t,
    table: cython.pointer[cython.longlong],
    slots: cython.Py_ssize_t,
) -> tuple[cython.Py_ssize_t, cython.int, cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t]:
    """See collect()."""
    at: cython.Py_ssize_t = start
    size: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    first: cython.longlong
    last: cython.longlong
    stamp: cython.longlong
    attributes: cython.int
    ending: cython.int
    coordinator_epoch: cython.longlong
    producer: cython.longlong
    offset_bytes: cython.Py_ssize_t = 0
    time_bytes: cython.Py_ssize_t = 0
    epoch_count: cython.Py_ssize_t = 0
    event_count: cython.Py_ssize_t = 0
    stop: cython.int = COMPLETE
    while at < end:
        if (
            offset_bytes >= 8 * index_entries_max
            or epoch_count >= epochs_max
            or event_count >= events_max
            or 2 * state[PRODUCERS] >= slots
        ):
            stop = LIMIT
            break
        size = check_batch(data, at, end, True)
        if size <= 0:
            stop = cython.cast(cython.int, -size)
            break
        first = int64_at(data, at)
        last = first + int32_at(data, at + 23)
        if first < state[EXPECTED]:
            stop = OUT_OF_ORDER
            break
        if last > last_offset_max:
            stop = OVERFLOW
            break
        attributes = int16_at(data, at + 21)
        producer = int64_at(data, at + 43)
        if producer >= 0 and last >= producers_from:
            ending, coordinator_epoch = -1, -1
            if attributes & 0x20:
                ending, coordinator_epoch = _marker(data, at, size)
                if ending == -2:
                    stop = BAD_MARKER
                    break
            slot = _slot_of(table, slots, -1 - producer)
            if table[slot] == 0:
                table[slot] = -1 - producer
                state[PRODUCERS] += 1
            if attributes & 0x20:
                if ending >= 0:
                    _note(data, at, ending, coordinator_epoch, events, event_count * NOTE)
                    event_count += 1
                    table[slot + 2] = 0
            else:
                if attributes & 0x10 and table[slot + 2] == 0:
                    _note(data, at, -1, -1, events, event_count * NOTE)
                    event_count += 1
                    table[slot + 2] = 1
                _note(data, at, -1, -1, table, slot + 3 + (table[slot + 1] % KEPT) * NOTE)
                table[slot + 1] += 1
        if int32_at(data, at + 12) > state[EPOCH]:
            state[EPOCH] = int32_at(data, at + 12)
            epochs[2 * epoch_count] = state[EPOCH]
            epochs[2 * epoch_count + 1] = first
            epoch_count += 1
        stamp = int64_at(data, at + 35)
        if stamp > state[LARGEST]:
            state[LARGEST] = stamp
            state[LARGEST_AT] = last
        if state[SINCE] > interval and position + at <= INT32_MAX:
            offset_bytes = _put32(offset_entries, offset_bytes, last - base_offset)
            offset_bytes = _put32(offset_entries, offset_bytes, position + at)
            if state[LARGEST] > state[NEWEST]:
                state[NEWEST] = state[LARGEST]
                time_bytes = _put32(time_entries, time_bytes, state[LARGEST] >> 32)
                time_bytes = _put32(time_entries, time_bytes, state[LARGEST])
                time_bytes = _put32(time_entries, time_bytes, state[LARGEST_AT] - base_offset)
            state[SINCE] = 0
        state[SINCE] += size
        state[EXPECTED] = last + 1
        at += size
    return at, stop, offset_bytes, time_bytes, epoch_count, event_count


def collect(
    chunk: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    position: cython.longlong,
    base_offset: cython.longlong,
    last_offset_max: cython.longlong,
    producers_from: cython.longlong,
    interval: cython.longlong,
    state: cython.longlong[::1],
    offset_entries: cython.uchar[::1],
    time_entries: cython.uchar[::1],
    epochs: cython.longlong[::1],
    events: cython.longlong[::1],
    table: cython.longlong[::1],
) -> tuple[int, int, int, int, int, int]:
    """Walks chunk[start:], whose byte 0 stands at `position` of the file.

    (end of the last good batch, why it stopped, bytes put into offset_entries and time_entries, epochs as pairs
    of epoch and start offset, events as notes). Producers whose batches end below producers_from are left out.
    """
    end: cython.Py_ssize_t = len(chunk)
    slots: cython.Py_ssize_t = len(table) // SLOT
    index_entries_max: cython.Py_ssize_t = min(len(offset_entries) // 8, len(time_entries) // 12)
    epochs_max: cython.Py_ssize_t = len(epochs) // 2
    events_max: cython.Py_ssize_t = len(events) // NOTE
    at: cython.Py_ssize_t
    stop: cython.int
    offset_bytes: cython.Py_ssize_t
    time_bytes: cython.Py_ssize_t
    epoch_count: cython.Py_ssize_t
    event_count: cython.Py_ssize_t
    if not 0 <= start <= end:
        raise IndexError("no such place in the chunk")
    if len(state) < 7 or index_entries_max < 1 or epochs_max < 1 or events_max < 1:
        raise IndexError("an output without room")
    if slots < 2 or slots & (slots - 1):
        raise IndexError("the table's slots are a power of two")
    if end == 0:
        return 0, COMPLETE, 0, 0, 0, 0
    if cython.compiled:
        data: cython.pointer[cython.const[cython.uchar]] = cython.address(chunk[0])
        numbers: cython.pointer[cython.longlong] = cython.address(state[0])
        offset_out: cython.pointer[cython.uchar] = cython.address(offset_entries[0])
        time_out: cython.pointer[cython.uchar] = cython.address(time_entries[0])
        epochs_out: cython.pointer[cython.longlong] = cython.address(epochs[0])
        events_out: cython.pointer[cython.longlong] = cython.address(events[0])
        producers: cython.pointer[cython.longlong] = cython.address(table[0])
    else:
        data, numbers, offset_out, time_out = chunk, state, offset_entries, time_entries
        epochs_out, events_out, producers = epochs, events, table
    if end - start > RELEASE_BYTES:
        with cython.nogil:
            at, stop, offset_bytes, time_bytes, epoch_count, event_count = _collect(
                data, start, end, position, base_offset, last_offset_max, producers_from, interval, numbers,
                offset_out, time_out, index_entries_max, epochs_out, epochs_max, events_out, events_max, producers, slots,
            )  # fmt: skip
    else:
        at, stop, offset_bytes, time_bytes, epoch_count, event_count = _collect(
            data, start, end, position, base_offset, last_offset_max, producers_from, interval, numbers,
            offset_out, time_out, index_entries_max, epochs_out, epochs_max, events_out, events_max, producers, slots,
        )  # fmt: skip
    return at, stop, offset_bytes, time_bytes, epoch_count, event_count
