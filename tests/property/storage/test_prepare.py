"""The short way of a plain batch through `prepare_leader` and the careful one agree: same batches, or same refusal."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.records.strategies import RECORDS, broken

from penstock.base.errors import PenstockError
from penstock.records.batch import Codec, TimestampType
from penstock.records.build import build_batch
from penstock.records.kernels import crc32c
from penstock.storage.append import Prepared, _prepare_with_care, prepare_leader
from penstock.storage.config import LogConfig, log_config
from penstock.storage.producer_state import Origin

PRODUCERS = st.sampled_from(((-1, -1, -1), (7, 0, 0), (7, 0, -1)))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    producer_id, epoch, sequence = draw(PRODUCERS)
    return build_batch(
        draw(st.lists(RECORDS, min_size=1, max_size=4)),
        base_offset=draw(st.sampled_from((0, 0, 0, 5))),
        codec=draw(st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP))),
        timestamp_type=draw(st.sampled_from((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@st.composite
def lies(draw: st.DrawFn) -> bytes:
    """A batch of which some bytes are changed, under a CRC that is right: what no checksum finds."""
    records = draw(
        st.lists(st.tuples(st.integers(0, 9), st.just(b"k"), st.just(b"v"), st.just(())), min_size=1, max_size=3)
    )
    data = bytearray(build_batch(records, producer_id=draw(st.sampled_from((-1, 7))), base_sequence=0))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.one_of(st.sampled_from((7, 22, 26, 60, 61, 63, 64, 65, 66)), st.integers(0, len(data) - 1)))
        data[min(place, len(data) - 1)] = draw(st.sampled_from([0, 1, 2, 4, 0x7F, 0x80, 0xFF]))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[16] = 2
    data[17:21] = crc32c(data, 21, len(data)).to_bytes(4, "big")
    return bytes(data)


SETS = st.lists(batches(), min_size=0, max_size=2).map(b"".join)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "cleanup.policy": st.sampled_from(("compact", "delete")),
        "max.message.bytes": st.sampled_from(("90", "300")),
        "message.timestamp.type": st.just("LogAppendTime"),
        "message.timestamp.after.max.ms": st.just("1000"),
        "message.timestamp.before.max.ms": st.just("1000"),
        "compression.type": st.sampled_from(("uncompressed", "producer")),
    },
)


def outcome(prepare: Any, records: bytes, config: LogConfig, origin: Origin, now_ms: int) -> object:
    try:
        prepared: Prepared = prepare(records, config, origin, now_ms)
    except PenstockError as error:
        return type(error), str(error)
    return bytes(prepared.data), prepared.batches, prepared.max_timestamps, prepared.config


@settings(max_examples=15 * settings().max_examples)
@given(
    st.one_of(SETS, broken(SETS), lies(), lies()),
    CONFIGS,
    st.sampled_from((Origin.CLIENT, Origin.CLIENT, Origin.COORDINATOR)),
    st.sampled_from((0, 5, 1_700_000_000_000)),
)
def test_the_short_way_agrees_with_the_careful_one(
    records: bytes, configured: dict[str, str], origin: Origin, now_ms: int
) -> None:
    config = log_config(configured)
    short = outcome(prepare_leader, records, config, origin, now_ms)
    assert short == outcome(_prepare_with_care, records, config, origin, now_ms)
