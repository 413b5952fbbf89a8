"""Compiled and interpreted kernels give the same answers on the same bytes, good and broken."""

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.records.strategies import INT64, RECORDS, broken, payloads
from tests.property.records.twins import built, interpreted

from penstock.client.partitioner import partition_of
from penstock.records import kernels
from penstock.records.batch import _STOPS, HEADER_BYTES, Batch, Scan
from penstock.records.build import build_batch, build_end_marker

pytestmark = pytest.mark.skipif(not kernels.COMPILED, reason="kernels are not compiled: there is only one twin")

SEEDS = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=3).map(build_batch), max_size=4).map(b"".join)

BATCH_BYTES = 100


@st.composite
def short_requests(draw: st.DrawFn) -> bytes:
    """Frames of a Produce of one batch for one partition, every field where it stands."""
    version = draw(st.integers(3, 13))
    name, acks, number = b"n" * draw(st.integers(1, 126)), draw(st.integers(-1, 2)), draw(st.integers(-2, 300))
    client = draw(st.sampled_from([None, b"", b"client"]))
    head = struct.pack(">hhih", 0, version, -5, -1 if client is None else len(client)) + (client or b"")
    if version < 9:
        body = (
            struct.pack(">hhiih", -1, acks, 30_000, 1, len(name)) + name + struct.pack(">iii", 1, number, BATCH_BYTES)
        )
        return head + body + bytes(BATCH_BYTES)
    topic = bytes(range(16)) if version >= 13 else bytes([len(name) + 1]) + name
    body = b"\0\0" + struct.pack(">hi", acks, 30_000) + b"\x02" + topic + b"\x02" + struct.pack(">i", number)
    return head + body + bytes([BATCH_BYTES + 1]) + bytes(BATCH_BYTES) + b"\0\0\0"


SHORT_REQUESTS = short_requests()


def both(room: str, function: str, *arguments: Any, outputs: tuple[Any, ...] = (), tail: tuple[Any, ...] = ()) -> Any:
    """Calls both twins with the same arguments (outputs copied for each) and demands equal answers and outputs."""
    answers = []
    for twin in (built, interpreted):
        copies = [array(o.typecode, o) if isinstance(o, array) else bytearray(o) for o in outputs]
        try:
            answer: Any = getattr(getattr(twin, room), function)(*arguments, *copies, *tail)
        except (IndexError, OverflowError) as error:
            answer = type(error)
        answers.append((answer, [bytes(memoryview(copy).cast("B")) for copy in copies]))
    assert answers[0] == answers[1]
    return answers[0]


@given(st.one_of(broken(BATCHES), BATCHES, st.binary(max_size=200), st.integers(0, 80).map(bytes)), st.booleans())
def test_scan(data: bytes, check_crc: bool) -> None:
    both("kernels", "scan", data, 0, -1, check_crc, -1, Batch, Scan, _STOPS)
    both("kernels", "scan", data, 0, -1, check_crc, 1, Batch, Scan, _STOPS)


@given(st.one_of(broken(BATCHES), BATCHES), INT64, INT64, st.integers(0, 400), st.booleans(), st.booleans())
def test_plain_batches(
    data: bytes, oldest_ms: int, newest_ms: int, bytes_max: int, require_keys: bool, is_client: bool
) -> None:
    both("produce_kernels", "plain_batches", data, oldest_ms, newest_ms, bytes_max, require_keys, is_client, Batch)


@given(
    st.one_of(broken(BATCHES), st.lists(RECORDS, min_size=1, max_size=3).map(build_batch)),
    st.integers(-2, 70),
    st.integers(0, 400),
    INT64,
    INT64,
    st.booleans(),
)
def test_placed_batch(data: bytes, start: int, cut: int, oldest_ms: int, base_offset: int, require_keys: bool) -> None:
    frame = bytes(max(start, 0)) + data
    bounds = (oldest_ms, 2**63 - 1, 400, require_keys, base_offset % 2**40, 5, Batch)
    both("produce_kernels", "placed_batch", frame, start, len(frame) - cut % 3, *bounds)


@given(broken(SHORT_REQUESTS))
def test_short_produce(frame: bytes) -> None:
    both("short_kernels", "short_request", frame)


@given(SHORT_REQUESTS)
def test_short_requests_are_taken(frame: bytes) -> None:
    asked = both("short_kernels", "short_request", frame)[0]
    assert asked is not None
    _, _, _, start, end, version, correlation_id, _, _, _ = asked
    assert (start > 0, end - start, version, correlation_id) == (True, BATCH_BYTES, frame[3], -5)


@given(st.binary(min_size=130, max_size=130), st.integers(2, 127), st.integers(3, 13), INT64, INT64)
def test_short_answer(frame: bytes, topic_end: int, version: int, base_offset: int, start_offset: int) -> None:
    asked = ("t", 3, 1, 0, 0, version, -7, 1, topic_end)
    both("short_kernels", "short_answer", frame, asked, base_offset, start_offset)


@given(st.binary(max_size=3000), st.integers(0, 20))
def test_crc(data: bytes, start: int) -> None:
    start = min(start, len(data))
    assert both("kernels", "crc32c", data, start, len(data))[0] == kernels.crc32c_portable(data[start:])
    head = kernels.crc32c(data, 0, start)
    assert both("kernels", "crc32c", data, start, len(data), head)[0] == kernels.crc32c_portable(data)


@given(
    st.lists(INT64, min_size=5, max_size=5),
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=4, max_size=4),
    st.integers(-(1 << 15), (1 << 15) - 1),
)
def test_headers_written_and_patched(longs: list[int], ints: list[int], short: int) -> None:
    arguments = (0, HEADER_BYTES + 9, longs[0], ints[0], short, ints[1], *longs[1:4], short, ints[2], ints[3])
    for twin in (built, interpreted):
        data = bytearray(HEADER_BYTES + 9)
        twin.kernels.write_header(data, *arguments)
        twin.kernels.assigned(data, 0, longs[4], ints[3], 1, longs[1], Batch)
        if twin is built:
            want = bytes(data)
    assert bytes(data) == want


@given(st.lists(st.integers(-5, 3000), max_size=1500), st.integers(-10, 3010))
def test_index_search_finds_the_largest_at_or_below(keys: list[int], target: int) -> None:
    keys.sort()
    want = sum(key <= target for key in keys) - 1
    offset_index = b"".join(key.to_bytes(4, "big", signed=True) + bytes(4) for key in keys)
    time_index = b"".join(key.to_bytes(8, "big", signed=True) + bytes(4) for key in keys)
    assert both("kernels", "search_offset_index", offset_index, len(keys), target)[0] == want
    assert both("kernels", "search_time_index", time_index, len(keys), target)[0] == want


@given(payloads(), st.data(), INT64, INT64, INT64)
def test_validate(made: tuple[bytes, int], data: st.DataObject, base: int, oldest: int, newest: int) -> None:
    payload, count = made
    for bytes_, base_timestamp in ((payload, 1000), (data.draw(broken(st.just(payload))), base)):
        both("record_kernels", "validate", bytes_, 0, len(bytes_), count, base_timestamp, oldest, newest)


@given(payloads(), st.data())
def test_columns_and_rewriting(made: tuple[bytes, int], data: st.DataObject) -> None:
    payload, count = made
    payload = data.draw(broken(st.just(payload)))
    outputs = (array("q", bytes(8 * count)), array("i", bytes(28 * count)))
    both("record_kernels", "columns", payload, 0, len(payload), count, outputs=outputs)
    keep = data.draw(st.binary(min_size=count, max_size=count))
    shift = data.draw(st.one_of(st.just(0), INT64))
    out = bytearray(len(payload) + 16 * count)
    for keep_all, renumber in ((False, False), (True, True)):
        arguments = (payload, 0, len(payload), count, keep, keep_all, shift, renumber)
        both("record_kernels", "rewrite", *arguments, outputs=(out,))


@given(st.binary(max_size=40))
def test_hash(key: bytes) -> None:
    both("key_kernels", "hash_key", key, *SEEDS)


@given(payloads(), st.data(), st.integers(0, 14), st.booleans())
def test_key_map(made: tuple[bytes, int], data: st.DataObject, keys_left: int, tombstones: bool) -> None:
    payload, count = made
    payload = data.draw(broken(st.just(payload)))
    answers = []
    for twin in (built, interpreted):
        words = array("Q", bytes(24 * 16))
        keep = bytearray(count)
        put = twin.key_kernels.put_batch(payload, 0, len(payload), count, 50, 60, words, keys_left, *SEEDS)
        selected = twin.key_kernels.select(payload, 0, len(payload), count, 50, put[2], tombstones, words, *SEEDS, keep)
        answers.append((put, selected, bytes(words), bytes(keep)))
    assert answers[0] == answers[1]


@given(payloads(), st.data(), INT64, st.integers(0, 200), st.integers(0, 10000))
def test_arrow(made: tuple[bytes, int], data: st.DataObject, base: int, first: int, length: int) -> None:
    payload, count = made
    payload = data.draw(st.one_of(st.just(payload), broken(st.just(payload))))
    group = array("q", [0, len(payload), count, 10, base, data.draw(st.integers(0, 1)), base])
    bounds = array("q", [first, first + length, *sorted((data.draw(INT64), data.draw(INT64)))])
    rows, size = count, len(payload)
    outputs: tuple[Any, ...] = (
        array("q", bytes(8 * rows + 8)),
        array("q", bytes(8 * rows + 8)),
        array("i", bytes(4 * rows + 4)),
        *(array("i", bytes(4 * rows + 4)), bytearray(size + 1), bytearray(rows // 8 + 1)) * 2,
        array("q", bytes(72)),
    )
    (answer, filled) = both("arrow_kernels", "fill", payload, group, bounds, outputs=outputs)
    if answer[0] < 0:
        return
    headers = array("q", filled[-1])[5]
    state = array("q", bytes(72))
    outputs = (
        *(array("i", bytes(4 * rows + 4)), bytearray(rows // 8 + 1)),
        *(array("i", bytes(4 * headers + 4)), bytearray(size + 1)),
        *(array("i", bytes(4 * headers + 4)), bytearray(size + 1), bytearray(headers // 8 + 1)),
        state,
    )
    both("arrow_kernels", "fill_headers", payload, group, bounds, 0, 0, outputs=outputs)


@given(st.lists(st.tuples(INT64, st.binary(max_size=70), st.booleans()), min_size=1, max_size=9), st.data())
def test_columns_to_records(rows: list[tuple[int, bytes, bool]], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rows)))
    count = data.draw(st.integers(0, len(rows) + 1))
    ends = array("i", [0])
    for _, item, _ in rows:
        ends.append(ends[-1] + len(item))
    if data.draw(st.integers(0, 4)) == 0:
        ends[data.draw(st.integers(0, len(ends) - 1))] = data.draw(st.integers(-3, 900))
    joined = b"".join(item for _, item, _ in rows)
    bits = bytearray(2)
    for index, (_, _, is_valid) in enumerate(rows):
        bits[index >> 3] |= is_valid << (index & 7)
    lists = memoryview(array("i", range(len(rows) + 1)))
    items = (memoryview(ends), joined, bits)
    columns = (memoryview(array("q", [t // 2 for t, _, _ in rows])), *items, *items, lists, ends, joined, *items)
    answer, _ = both("build_kernels", "size", first, count, *columns)
    if isinstance(answer, tuple):
        end, _ = both(
            "build_kernels", "encode", first, count, *columns, outputs=(bytearray(answer[0] + 61),), tail=(61,)
        )
        assert end == 61 + answer[0]


def _idempotent(records: list[Any], number: int) -> bytes:
    return build_batch(
        records,
        base_offset=100 * number,
        leader_epoch=number // 2,
        producer_id=number % 3 - 1,
        producer_epoch=0,
        base_sequence=0,
        transactional=number % 3 > 0,
    )


@given(st.data(), st.sampled_from((0, 150)), st.sampled_from((1, 50)))
def test_recovery(data: st.DataObject, interval: int, room: int) -> None:
    sets = data.draw(st.lists(st.lists(RECORDS, min_size=1, max_size=2), max_size=8))
    parts = [_idempotent(records, number) for number, records in enumerate(sets)]
    if data.draw(st.booleans()):
        parts.append(build_end_marker(True, 1, 0, 5, 9, base_offset=10_000))
    chunk = data.draw(broken(st.just(b"".join(parts))))
    both(
        "recovery_kernels",
        "collect",
        chunk,
        0,
        7,
        0,
        2**31,
        0,
        interval,
        outputs=(
            array("q", [0, 0, -1, 0, -1, -1, 0]),
            bytearray(8 * room),
            bytearray(12 * room),
            array("q", bytes(16 * room)),
            array("q", bytes(72 * room)),
            array("q", bytes(48 * 8 * 4)),
        ),
    )


@given(st.lists(st.none() | st.binary(max_size=30), max_size=20), st.integers(1, 50), st.data())
def test_partitions_of_keys(keys: list[bytes | None], partitions: int, data: st.DataObject) -> None:
    ends = array("i", [0])
    for key in keys:
        ends.append(ends[-1] + len(key or b""))
    valid = bytearray(len(keys) // 8 + 1)
    for row, key in enumerate(keys):
        valid[row >> 3] |= (key is not None) << (row & 7)
    first = data.draw(st.integers(0, len(keys)))
    chosen = array("i", bytes(4 * len(keys) + 4))
    joined = b"".join(key or b"" for key in keys)
    arguments = (first, len(keys) - first, ends, joined, valid, partitions)
    _, (found,) = both("partition_kernels", "choose", *arguments, outputs=(chosen,))
    for slot, key in enumerate(keys[first:]):
        if key is not None:
            both("partition_kernels", "murmur2", key)
        assert array("i", found)[slot] == (-1 if key is None else partition_of(key, partitions))
    both("partition_kernels", "choose", first, len(keys) + 1, ends, joined, valid, partitions, outputs=(chosen,))
    both("partition_kernels", "choose", 0, 1, array("i", [0, 99]), joined, b"", partitions, outputs=(chosen,))
