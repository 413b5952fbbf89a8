"""Avro and Protobuf become columns, and whatever cannot is kept with its offset and the reason."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_penstock.payloads import _Codec, decode, decode_column
from pyspark_penstock.schema_registry import PayloadError, Registry, RegistryUnreachableError, Schema, read_schema
from tests.pipelines.schema_server import SchemaServer, prefixed
from tests.pipelines.topics import load, new_topic, send

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": "string"}],
}
SECOND = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "amount", "type": ["null", "double"], "default": None}],
}
TIME = {"type": "int", "logicalType": "time-millis"}
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"}, {"name": "small", "type": "int"}, {"name": "ratio", "type": "float"},
        {"name": "raw", "type": "bytes"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}, {"name": "m", "type": {"type": "map", "values": "string"}}]}}},
        {"name": "maybe", "type": ["null", {"type": "map", "values": "int"}], "default": None},
    ],
}  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def columns(codec: _Codec, values: list[bytes | None]) -> list[tuple[Any, str | None]]:
    """Decoded as a worker does it, without Spark."""
    kind = to_arrow_type(StructType([StructField("parsed", codec.columns()), StructField("reason", StringType())]), timezone="UTC")  # fmt: skip
    found = decode_column(codec, pa.array(values, pa.binary()), kind)
    assert found.type == kind
    return [(row["parsed"], row["reason"]) for row in found.to_pylist()]


def avro_codec(schema: Any, registry: Registry | None = None) -> _Codec:
    return _Codec("avro", Schema((json.dumps(schema).encode(),)), registry, "")


def test_every_type_of_avro_that_a_column_can_be() -> None:
    value = {
        "flag": True, "small": -3, "ratio": 0.5, "raw": b"\x00\xff", "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), "price": Decimal("12.34"), "key": uuid.UUID(int=5),
        "colour": "BLUE", "tags": {"a": 1}, "lines": [{"n": 1, "m": {"x": "y"}}, {"n": 2, "m": {}}], "maybe": {"z": 3},
    }  # fmt: skip
    ((row, reason),) = columns(avro_codec(EVERYTHING), [avro(EVERYTHING, value)])
    assert reason is None
    maps = {"tags": [("a", 1)], "lines": [{"n": 1, "m": [("x", "y")]}, {"n": 2, "m": []}], "maybe": [("z", 3)]}
    assert row == {**value, **maps, "key": str(uuid.UUID(int=5))}


def test_each_bad_value_has_its_reason_and_the_others_are_read() -> None:
    good = avro(FIRST, {"id": 7, "country": "se"})
    found = columns(avro_codec(FIRST), [good, b"", None, good + b"x", good[:-1], good])
    assert [row for row, _ in found] == [{"id": 7, "country": "se"}, None, None, None, None, {"id": 7, "country": "se"}]
    reasons = [reason for _, reason in found]
    assert reasons[0] is reasons[5] is None
    assert reasons[2] == "the record has no value"
    assert reasons[3] == "1 bytes are left over behind the value"
    assert reasons[1] == "the value is not as its schema says (EOFError)"
    assert str(reasons[4]).startswith("the value is not as its schema says (EOFError: ")


def test_a_value_that_does_not_fit_its_column_is_a_bad_one_alone() -> None:
    def price(kind: Any) -> dict[str, Any]:
        return {
            "type": "record",
            "name": "P",
            "fields": [{"name": "price", "type": kind}, {"name": "at", "type": TIME}],
        }

    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    good = avro(price(decimal), {"price": Decimal("123.45"), "at": time(12, 30, 1)})
    wide = avro(price("bytes"), {"price": (10**9).to_bytes(5, "big"), "at": time(0)})
    found = columns(avro_codec(price(decimal)), [good, wide, good])
    assert found[0] == found[2] == ({"price": Decimal("123.45"), "at": "12:30:01"}, None)
    assert found[1][0] is None
    assert str(found[1][1]).startswith("the value does not fit its column: ")


@pytest.mark.parametrize("kind", ["url", "directory"])
def test_schemas_by_id_come_from_a_registry_or_a_directory(tmp_path: Path, kind: str) -> None:
    with SchemaServer() as server:
        for number, schema in ((3, FIRST), (8, SECOND)):
            server.add("orders-value", number, json.dumps(schema))
            (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
        registry = Registry(server.url if kind == "url" else str(tmp_path), "avro")
        codec = _Codec("avro", registry.latest("orders-value"), registry, "")
        values = [
            prefixed(3, avro(FIRST, {"id": 1, "country": "se"})),
            prefixed(8, avro(SECOND, {"id": 2, "country": "pt", "amount": 1.5})),
            prefixed(9, b"x"),
            b"\x01\x00\x00\x00\x03x",
            b"\x00\x00",
        ]
        found = columns(codec, [*values, *values])
        if kind == "url":
            assert server.asked.count("/schemas/ids/3") == 1  # then it is known
        assert found[:2] == [
            ({"id": 1, "country": "se", "amount": None}, None),
            ({"id": 2, "country": "pt", "amount": 1.5}, None),
        ]
        assert [row for row, _ in found[2:5]] == [None] * 3
        assert "no such schema" in str(found[2][1]) or "there is no schema 9" in str(found[2][1])
        assert found[3][1] == found[4][1] == "the value does not begin with a zero byte and a schema's id"
        assert found[5:] == found[:5]


def test_a_registry_that_gives_no_answer_fails_the_task_and_blames_no_record(tmp_path: Path) -> None:
    def fails(place: str, sentence: str, format: str = "avro") -> None:
        codec = _Codec(format, avro_codec(FIRST).reader, Registry(place, format), "")
        with pytest.raises(RegistryUnreachableError, match=sentence):
            decode_column(codec, pa.array([prefixed(1, b"x")]), pa.struct([]))

    with SchemaServer(credentials="alice:se:cret") as server:
        server.add("text-value", 1, b"syntax")
        server._schemas[1]["schema"] = 'syntax = "proto3"'
        with_name = server.url.replace("//", "//alice:se%3Acret@")
        fails(server.url, "schemas/ids/1: answered with 401")
        fails(f"{with_name}/other", "/other/schemas/ids/1: answered with 404")  # nobody there who knows of schemas
        fails(with_name, f"^{server.url}: this is no schema as we asked for it: ", "protobuf")  # it does not compile
        url = server.url
    fails(url, "schemas/ids/1: ")
    fails("http://alice:secret@registry:port", "^http://registry:port/schemas/ids/1: ")
    fails(str(tmp_path / "not-here"), "not-here: there is no such directory on this machine")


def test_a_registry_is_asked_with_the_name_and_password_of_its_address_and_once_for_what_it_lacks() -> None:
    with SchemaServer(credentials="alice:s:t") as server:
        server.add("orders-value", 3, json.dumps(FIRST))
        registry = Registry(server.url.replace("//", "//alice:s%3At@"), "avro")
        codec = _Codec("avro", registry.latest("orders-value"), registry, "")
        good = prefixed(3, avro(FIRST, {"id": 1, "country": "se"}))
        found = columns(codec, [prefixed(7, b"a"), prefixed(7, b"b"), good, b"\x00\xff\xff\xff\xffc"])
        assert server.asked.count("/schemas/ids/7") == 1
    reason = f"{server.url}/schemas/ids/7: there is no such schema"
    assert found[:2] == [(None, reason)] * 2  # no password in it
    assert found[2:] == [({"id": 1, "country": "se"}, None), (None, "-1 is no schema's id")]


def test_a_schema_may_refer_to_others_of_its_registry_and_one_that_cannot_be_used_makes_its_records_bad() -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}
    fields = [{"name": name, "type": "shop.Address"} for name in ("bill_to", "ship_to")]
    order = {"type": "record", "name": "shop.Order", "fields": fields}
    with SchemaServer() as server:
        server.add("shop.Address", 1, json.dumps(address))
        server.add("orders-value", 2, json.dumps(order), references=("shop.Address",))
        server.add("broken-value", 3, json.dumps(order))  # the reference is missing
        registry = Registry(server.url, "avro")
        codec = _Codec("avro", registry.latest("orders-value"), registry, "")
        whole = {**order, "fields": [{"name": "bill_to", "type": address}, fields[1]]}
        row = {"bill_to": {"street": "a"}, "ship_to": {"street": "b"}}
        found = columns(codec, [prefixed(2, avro(whole, row)), prefixed(3, avro(whole, row))])
    assert found[0] == (row, None)
    assert found[1] == (None, "no Avro schema: UnknownType: shop.Address")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}, "the schema, u is a union of several types"),
        ({"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}, "next is R, which would have no end"),
        ({"type": "string"}, "the schema is no record"),
        ({"type": "nonsense"}, "no Avro schema: "),
    ],
)  # fmt: skip
def test_a_schema_that_no_columns_fit_is_refused_at_once(schema: Any, sentence: str) -> None:
    with pytest.raises(PayloadError, match=sentence):
        avro_codec(schema).columns()


# ---- Protobuf


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    """What protoc makes of

    message Order { int64 id = 1; optional string note = 2; Colour colour = 3; repeated Line lines = 4; map<string, int32> tags = 5;
        google.protobuf.Timestamp at = 6; google.protobuf.DoubleValue amount = 7; uint64 large = 8; bytes raw = 9; }
    message Line { int32 n = 1; }   enum Colour { RED = 0; BLUE = 1; }
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=one)
    order.field.add(name="note", number=2, type=field.TYPE_STRING, label=one, proto3_optional=True, oneof_index=0)
    order.field.add(name="colour", number=3, type=field.TYPE_ENUM, label=one, type_name=".shop.Colour")
    order.field.add(name="lines", number=4, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Line")
    order.field.add(name="tags", number=5, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Order.TagsEntry")
    for number, name, kind in ((6, "at", "Timestamp"), (7, "amount", "DoubleValue")):
        order.field.add(
            name=name, number=number, type=field.TYPE_MESSAGE, label=one, type_name=f".google.protobuf.{kind}"
        )
    order.field.add(name="large", number=8, type=field.TYPE_UINT64, label=one)
    order.field.add(name="raw", number=9, type=field.TYPE_BYTES, label=one)
    file.message_type.add(name="Line").field.add(name="n", number=1, type=field.TYPE_INT32, label=one)
    return file


def order(**values: Any) -> bytes:
    pool = DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(proto_file().SerializeToString())
    message: Any = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**values)
    return bytes(message.SerializeToString())


EMPTY: dict[str, Any] = {"id": 0, "note": None, "colour": "RED", "lines": [], "tags": [], "at": None, "amount": None, "large": Decimal(0), "raw": b""}  # fmt: skip


def proto_files() -> descriptor_pb2.FileDescriptorSet:
    """The same with what it imports."""
    files = [known.DESCRIPTOR.serialized_pb for known in (timestamp_pb2, wrappers_pb2)]
    whole = descriptor_pb2.FileDescriptorSet(file=[descriptor_pb2.FileDescriptorProto.FromString(one) for one in files])
    whole.file.append(proto_file())
    return whole


def test_every_type_of_protobuf_that_a_column_can_be(tmp_path: Path) -> None:
    (tmp_path / "order.desc").write_bytes(proto_files().SerializeToString())
    codec = _Codec("protobuf", read_schema(tmp_path / "order.desc", "protobuf"), None, "")
    at = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
    full = {
        "id": -1, "note": "", "colour": "BLUE", "lines": [{"n": 1}, {"n": 2}], "tags": [("a", 1)], "at": at, "amount": 0.0,
        "large": Decimal(2**64 - 1), "raw": b"\xff",
    }  # fmt: skip
    value = order(
        id=-1, note="", colour=1, lines=[{"n": 1}, {"n": 2}], tags={"a": 1},
        at=at, amount={"value": 0.0},
        large=2**64 - 1, raw=b"\xff",
    )  # fmt: skip
    found = columns(codec, [value, b"", b"\xff\xff", None])
    assert found[0] == (full, None)
    assert found[1] == (EMPTY, None)
    assert [row for row, _ in found[2:]] == [None, None]
    assert all(reason for _, reason in found[2:])
    with pytest.raises(PayloadError, match=r"order\.proto has no message shop\.Oder; it has shop\.Order, shop\.Line"):
        _Codec("protobuf", codec.reader, None, "shop.Oder").columns()
    (tmp_path / "text.desc").write_text('syntax = "proto3";')
    with pytest.raises(PayloadError, match="is not what protoc"):
        read_schema(tmp_path / "text.desc", "protobuf")


def test_schemas_may_import_what_comes_with_protobuf_and_others_of_their_registry() -> None:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="delivery.proto", package="shop", syntax="proto3")
    file.dependency.extend(["order.proto", "google/protobuf/duration.proto"])
    delivery = file.message_type.add(name="Delivery")
    for number, (name, kind) in enumerate({"line": ".shop.Line", "took": ".google.protobuf.Duration"}.items(), 1):
        delivery.field.add(name=name, number=number, type=field.TYPE_MESSAGE, label=1, type_name=kind)
    with SchemaServer() as server:
        server.add("order.proto", 1, proto_file().SerializeToString())
        server.add("deliveries-value", 2, file.SerializeToString(), references=("order.proto",))
        registry = Registry(server.url, "protobuf")
        codec = _Codec("protobuf", registry.latest("deliveries-value"), registry, "")
        found = columns(codec, [prefixed(2, b"\x00\x0a\x02\x08\x05\x12\x02\x08\x3c")])
    assert found == [({"line": {"n": 5}, "took": {"seconds": 60, "nanos": 0}}, None)]


def test_confluents_message_indexes_say_which_message_a_value_is() -> None:
    with SchemaServer() as server:
        server.add("orders-value", 4, proto_file().SerializeToString())
        registry = Registry(server.url, "protobuf")
        codec = _Codec("protobuf", registry.latest("orders-value"), registry, "shop.Order")
        value = order(id=5)
        found = columns(
            codec,
            [
                prefixed(4, b"\x00" + value),
                prefixed(4, b"\x02\x00" + value),
                prefixed(4, b"\x02\x02"),
                prefixed(4, b"\x02\x08"),
                prefixed(4, b""),
            ],
        )
    assert found[:2] == [({**EMPTY, "id": 5}, None)] * 2
    assert [row for row, _ in found[2:]] == [None] * 3
    assert [reason for _, reason in found[2:]] == [
        "the value is a shop.Line, not a shop.Order",
        "the schema has no message (4,)",
        "the message indexes are cut off",
    ]


def test_on_spark_good_rows_have_their_columns_and_bad_ones_their_offset(
    spark: SparkSession, penstock_server: str
) -> None:
    topic = new_topic(penstock_server)
    with SchemaServer() as server:
        server.add(f"{topic}-value", 1, json.dumps(SECOND))
        values = [prefixed(1, avro(SECOND, {"id": n, "country": "se", "amount": n / 2})) for n in range(50)]
        values[20:20] = [b"junk", prefixed(2, b"")]
        send(penstock_server, topic, values)
        frame = load(spark, penstock_server, subscribe=topic)
        good, bad = decode(frame, "avro", registry=server.url, subject=f"{topic}-value")
        rows = good.orderBy("_offset").toArrow().to_pylist()
        letters = bad.orderBy("offset").toArrow().to_pylist()
    assert [(row["id"], row["amount"]) for row in rows] == [(n, n / 2) for n in range(50)]
    assert rows[-1]["_offset"] == 51
    assert [(row["offset"], row["value"]) for row in letters] == [(20, b"junk"), (21, prefixed(2, b""))]
    assert letters[0]["reason"] == "the value does not begin with a zero byte and a schema's id"
    assert letters[1]["reason"].endswith("there is no such schema")


RECORDS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


@pytest.mark.parametrize("schema", ["id BIGINT, name STRING", "struct<id: bigint, name: string>"])
def test_the_columns_of_json_are_written_in_both_of_sparks_ways(spark: SparkSession, schema: str) -> None:
    values = [b'{"id": 1, "name": "a"}', b"no JSON", None]
    frame = spark.createDataFrame([(None, value, "t", 0, n, None) for n, value in enumerate(values)], RECORDS)
    good, bad = decode(frame, "json", schema=schema)
    assert [(row["id"], row["name"], row["_offset"]) for row in good.collect()] == [(1, "a", 0)]
    reasons = [(row["offset"], row["reason"]) for row in bad.orderBy("offset").collect()]
    assert reasons == [(1, f"not JSON, or not like {schema}"), (2, "the record has no value")]


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("", "json needs a schema: columns like 'id STRING, amount DOUBLE'"),
        ("int", "json needs a schema: columns like"),
        ("id INT, _Offset INT", "the value has a column _Offset, a name that is needed for the record itself"),
        ("id INT, _corrupt_record STRING", "the value has a column _corrupt_record, a name"),
    ],
)
def test_columns_that_cannot_be_are_refused_at_once(spark: SparkSession, schema: str, sentence: str) -> None:
    with pytest.raises(PayloadError, match=sentence):
        decode(spark.createDataFrame([], RECORDS), "json", schema=schema)
