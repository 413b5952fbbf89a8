"""The sink's options, Spark's own Kafka connector's names first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.config import boolean, integer, text
from penstock.base.errors import ConfigError
from penstock.client.config import ClientConfig, client_config
from penstock.records.batch import Codec
from pyspark_penstock.options import KAFKA_PREFIX, by_lower_name, given_value, refuse_mistakes

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAMES = ("kafka.bootstrap.servers", "topic", "delivery", "txnAppId", "txnVersion", "checkpointLocation", "path")
EXACTLY_ONCE = "exactly_once"

_FIXED = {
    "kafka.key.serializer": "keys are text or binary already",
    "kafka.value.serializer": "values are text or binary already",
    "kafka.transactional.id": "delivery=exactly_once names its transactions itself",
    "kafka.interceptor.classes": "records are not passed through Java classes",
}
_DELIVERY = text("delivery", "at_least_once", "How often a row may arrive.", choices=("at_least_once", EXACTLY_ONCE))
_COMPRESSION = text("kafka.compression.type", "none", "How batches are compressed.", choices=tuple(codec.name.lower() for codec in Codec))  # fmt: skip
_ACKS = text("kafka.acks", "all", "Who has to have a batch.", choices=("all", "-1", "1"))
_IDEMPOTENCE = boolean("kafka.enable.idempotence", True, "Whether leaders take each batch of a task once and in order.")
_REQUEST_BYTES = integer("kafka.max.request.size", 1024 * 1024, "The largest batch that is sent.", low=1)
_TRANSACTION_MS = integer("kafka.transaction.timeout.ms", 900_000, "How long a batch of a query may take.", low=1)
_VERSION = integer("txnVersion", 0, "Which write of its application this is.", bits=64, low=0)

_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_SOURCE_ONLY = ("offset", "timestamp", "timestampType")
"""What else the source gives: a record gets its own when it is written, so a topic can be copied as it was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    client: ClientConfig
    topic: str | None
    """None: a column names it."""
    codec: Codec
    acks: int
    is_idempotent: bool
    """At least once, batches carry a producer's id and sequences; under exactly once they always do."""
    request_bytes_max: int
    is_exactly_once: bool
    transaction_timeout_ms: int
    application: str | None
    version: int
    """Under exactly once: a write of an application that has this version already is not done again."""


def client_of(options: Mapping[str, str]) -> ClientConfig:
    """What the options say of the cluster."""
    given = by_lower_name(options)
    kafka = {name[len(KAFKA_PREFIX) :]: value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    if "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: it names the brokers as host:port,host:port")
    try:
        return client_config(kafka)
    except ConfigError as error:
        raise ConfigError(f"{KAFKA_PREFIX}{error}") from None


def read_sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    given = by_lower_name(options)
    refuse_mistakes(given, NAMES, _FIXED)
    client = client_of(options)
    topic = given.get("topic") or None
    _check_schema(schema, topic)
    is_exactly_once = given_value(_DELIVERY, given) == EXACTLY_ONCE
    application = given.get("txnappid") or None
    if (application is None) != ("txnversion" not in given):
        raise ConfigError("txnAppId and txnVersion go together: they name a write that is done once")
    if application is not None and not is_exactly_once:
        raise ConfigError("txnAppId and txnVersion are for delivery=exactly_once")
    if is_exactly_once and given.get("asyncprogresstrackingenabled", "").lower() == "true":
        raise ConfigError(
            "asyncProgressTrackingEnabled does not go with delivery=exactly_once: after a crash rows would come again in other batches"
        )
    acks = 1 if given_value(_ACKS, given) == "1" and not is_exactly_once else -1
    return SinkOptions(
        client=client,
        topic=topic,
        codec=Codec[given_value(_COMPRESSION, given).upper()],
        acks=acks,
        is_idempotent=acks == -1 and given_value(_IDEMPOTENCE, given),
        request_bytes_max=given_value(_REQUEST_BYTES, given),
        is_exactly_once=is_exactly_once,
        transaction_timeout_ms=given_value(_TRANSACTION_MS, given),
        application=application,
        version=given_value(_VERSION, given),
    )


def _check_schema(schema: StructType, topic: str | None) -> None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise ConfigError("the column value is missing: a record is at least that")
    if topic is None and "topic" not in types:
        raise ConfigError("neither the option topic nor a column topic says where to write")
    for name, found in types.items():
        if name in _SOURCE_ONLY:
            continue
        if name not in _TYPES:
            raise ConfigError(f"there is no place for a column {name}: {', '.join(_TYPES)} are written")
        if found not in _TYPES[name]:
            raise ConfigError(f"the column {name} is {found}; it must be {' or '.join(_TYPES[name])}")
