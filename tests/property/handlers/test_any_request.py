"""Any request, well formed or not, of any API in any version: a declared error or an answer that can be read, bounded
memory, and the next request is answered as ever (attacks A2, A3, A7)."""

from __future__ import annotations

import dataclasses
import datetime
import io
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)
from kio.serial.errors import OutOfBoundValue
from tests.support.wire import header
from tests.unit.handlers.world import Answer, World

from penstock.handlers.api import CloseConnectionError
from penstock.handlers.registry import make_registry
from penstock.protocol.errors import MalformedMessageError

APIS = make_registry()
PEAK_BYTES_MAX = 4_000_000
"""More than any request of a few hundred bytes may need, the broker's own work included."""

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 9, "uint16": 17, "uint32": 33}
_TEXTS = st.sampled_from(
    ["", "t", "u", "g", "1", "a/b", "ä", "x" * 300, "retention.ms", "5", "consumer", "range"]
) | st.text(max_size=8)


def _primitive(kind: str) -> st.SearchStrategy[Any]:
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        low, high = (0, 2 ** (bits - 1) - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return st.integers(-2, 3).filter(lambda n: n >= low) | st.integers(low, high)
    if kind == "string":
        return _TEXTS
    if kind == "bool":
        return st.booleans()
    if kind == "uuid":
        return st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=1001), uuid.UUID(int=9)])
    if kind in ("timedelta_i32", "timedelta_i64"):
        return st.integers(-(2**31), 2**31 - 1).map(lambda ms: datetime.timedelta(milliseconds=ms))
    if kind == "float64":
        return st.floats(allow_nan=False, allow_infinity=False)
    assert kind in ("bytes", "records"), kind
    return st.binary(max_size=80)


def entities(schema: type) -> st.SearchStrategy[Any]:
    fields = {}
    for field in dataclasses.fields(schema):
        kind = classify_field(field)
        if isinstance(kind, EntityTupleField):
            one: st.SearchStrategy[Any] = st.lists(entities(kind.type_), max_size=3).map(tuple)
        elif isinstance(kind, EntityField):
            one = entities(kind.type_)
        elif isinstance(kind, PrimitiveTupleField):
            one = st.lists(_primitive(get_schema_field_type(field)), max_size=3).map(tuple)
        else:
            one = _primitive(get_schema_field_type(field))
        fields[field.name] = st.none() | one if is_optional(field) else one
    return st.builds(schema, **fields)


@st.composite
def frames(draw: st.DrawFn, key: int) -> tuple[int, bytes]:
    api = APIS[key]
    version = draw(st.integers(api.low, api.high))
    schema = load_request_schema(key, version)
    body = io.BytesIO()
    entity_writer(schema)(body, draw(entities(schema)))
    frame = bytearray(header(key, version, schema) + body.getvalue())
    for _ in range(draw(st.integers(0, 3))):
        where = draw(st.integers(8, len(frame)))
        cut = draw(st.integers(0, 4))
        frame[where : where + cut] = draw(
            st.sampled_from([b"", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00", b"\xff" * 10])
        )
    return version, bytes(frame)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("fuzz"), log_index_size_max_bytes="1024", offsets_topic_num_partitions="1")
    made.create_topic("t", 2)
    return made


def _check_readable(answer: Answer) -> None:
    try:
        answer.read()
    except OutOfBoundValue as error:  # kio's times begin in 1970; the wire's -1 says that there is none
        if "negative timestamp" not in str(error):
            raise


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: APIS[key].name)
def test_whatever_is_sent_is_answered_or_refused(world: World, key: int, full_counts: bool) -> None:
    @settings(
        max_examples=600 if full_counts else 25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(frames(key))
    # A2, A3, A7
    def property_holds(sent: tuple[int, bytes]) -> None:
        version, frame = sent
        tracemalloc.start()
        try:
            outcome = world.send_frame(frame)
            world.loop.turn()
        except (MalformedMessageError, CloseConnectionError):
            return
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < PEAK_BYTES_MAX
        answer = Answer(key, version, APIS[key].flexible_from, outcome)
        if answer.is_there:
            _check_readable(answer)
        neighbour = world.send(18, 3, client_software_name="n", client_software_version="1")
        assert neighbour.is_there

    property_holds()
