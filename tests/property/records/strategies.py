"""Records, batches and broken bytes for Hypothesis."""

from hypothesis import strategies as st

from penstock.records.batch import Codec
from penstock.records.build import Record, encode_record

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMESTAMPS = st.one_of(st.integers(0, 2_000_000_000_000), st.integers(-5, 5))
FIELDS = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 300).map(bytes))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
RECORDS: st.SearchStrategy[Record] = st.tuples(TIMESTAMPS, FIELDS, FIELDS, HEADERS)
CODECS = st.sampled_from(list(Codec))


@st.composite
def payloads(draw: st.DrawFn, min_size: int = 0) -> tuple[bytes, int]:
    """Records as bytes, and their number; offset deltas rise with gaps."""
    body = bytearray()
    delta = -1
    records = draw(st.lists(RECORDS, min_size=min_size, max_size=12))
    for timestamp, key, value, headers in records:
        delta += draw(st.sampled_from([1, 1, 1, 2, 70, 9000]))
        body += encode_record(delta, timestamp - 1000, key, value, headers)
    return bytes(body), len(records)


@st.composite
def broken(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with some of them changed, cut off or added; sometimes none."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x0F, 0x10]))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    if draw(st.integers(0, 5)) == 0:
        data += draw(st.binary(max_size=12))
    return bytes(data)
