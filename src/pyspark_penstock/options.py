"""The source's options: Spark's own Kafka connector's names and meanings, read once into values.

Spark hands options over with their names in lower case; messages use the names as people write them. Whatever is wrong is
said in one sentence, before anything is read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.base.config import ConfigKey, boolean, integer, text
from penstock.base.errors import ConfigError
from penstock.base.ids import TopicPartition
from penstock.client.config import KEYS, ClientConfig, client_config
from penstock.client.offsets import EARLIEST, LATEST
from pyspark_penstock.rows import COLUMNS

T = TypeVar("T")

KAFKA_PREFIX = "kafka."
STRATEGIES = ("subscribe", "assign", "subscribePattern")
MODES = ("auto", "segments", "wire")
LOG_END = -3
"""As an end: behind the last whole batch in the files, whatever the brokers have agreed on."""

NAMES = (
    *STRATEGIES,
    "kafka.bootstrap.servers",
    "mode",
    "path",
    "view",
    "columns",
    "pushDown",
    "includeHeaders",
    "failOnDataLoss",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)

_FIXED = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": "the source keeps its offsets in Spark's checkpoints",
    "kafka.interceptor.classes": "records are not passed through Java classes",
    "kafka.key.deserializer": "keys are binary; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are binary; decode them with DataFrame operations",
}
_TABLE_PREFIX = "option."
"""So the options of CREATE TABLE are called while the table is made; whoever reads it gets none of them."""
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?\Z")
_UNIT_MS = {"ms": 1, None: 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_INCLUDE_HEADERS = boolean("includeHeaders", False, "A column more: the records' headers.")
_FAIL_ON_DATA_LOSS = boolean("failOnDataLoss", True, "Fail where records are gone before they were read, or go on.")
_POLL_TIMEOUT = integer("kafkaConsumer.pollTimeoutMs", 120_000, "Give a partition up that is silent for this long.", bits=64, low=1)  # fmt: skip
_MIN_PARTITIONS = integer("minPartitions", 0, "At least so many tasks.", low=1)
_MAX_RECORDS = integer("maxRecordsPerPartition", 0, "At most so many offsets a task.", bits=64, low=1)
_STARTING_TIMESTAMP = integer("startingTimestamp", 0, "Begin at this time, in ms.", bits=64, low=0)
_ENDING_TIMESTAMP = integer("endingTimestamp", 0, "End before this time, in ms.", bits=64, low=0)
_MAX_OFFSETS = integer("maxOffsetsPerTrigger", 0, "At most so many offsets a micro-batch.", bits=64, low=1)
_MIN_OFFSETS = integer("minOffsetsPerTrigger", 0, "Wait for so many offsets …", bits=64, low=1)
_UNMATCHED = text("startingOffsetsByTimestampStrategy", "error", "Where no record is as young as asked for.", choices=("error", "latest"))  # fmt: skip
ISOLATION_LEVEL = KEYS["isolation.level"]
_VIEW = text("view", "latest", "What is made of the records.", choices=("latest",))
_PUSH_DOWN = boolean("pushDown", False, "Conditions of `where` narrow what is read; for a DataFrame of one query.")
_MODE = text("mode", "auto", "The way to the records.", choices=MODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffset:
    """Every partition at EARLIEST or LATEST."""

    which: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """Each partition at an offset of its own, or at EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """Every partition at its first record of this time or later; `else_latest`: at its end where there is none."""

    timestamp_ms: int
    else_latest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    timestamps_ms: Mapping[TopicPartition, int]
    else_latest: bool


Bound = AtOffset | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    client: ClientConfig | None
    """None: the log directory `path` is all there is."""
    mode: str
    path: str
    read_committed: bool
    subscription: Subscription
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    poll_timeout_ms: int
    partitions_min: int | None
    records_per_partition_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    common: CommonOptions
    start: Bound
    end: Bound
    is_view: bool = False
    """The latest record of each key instead of all of them."""
    takes_conditions: bool = False
    """Conditions narrow the plan. Spark keeps the last plan of a DataFrame for all that is made of it: see `batch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    common: CommonOptions
    start: Bound
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    group_id: str | None = None
    """Where finished offsets are committed, for tools that watch lag; the stream itself never reads them."""


def read_common(options: Mapping[str, str]) -> CommonOptions:
    given = by_lower_name(options)
    refuse_mistakes(given, NAMES, _FIXED)
    mode, path = given_value(_MODE, given), _path(given)
    kafka = {name[len(KAFKA_PREFIX) :]: value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    is_alone = bool(path) and "bootstrap.servers" not in kafka
    if is_alone and mode == "wire":
        raise ConfigError("mode=wire needs the option kafka.bootstrap.servers, which names the brokers")
    if not path and "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: it names the brokers as host:port,host:port")
    try:
        if "view" in given:
            kafka.setdefault("isolation.level", "read_committed")
        read_committed = ISOLATION_LEVEL.read(kafka.get("isolation.level", "read_uncommitted")) == "read_committed"
        client = None if is_alone else client_config(kafka)
    except ConfigError as error:
        raise ConfigError(f"{KAFKA_PREFIX}{error}") from None
    return CommonOptions(
        client=client,
        mode=mode,
        path=path,
        read_committed=read_committed,
        subscription=_subscription(given),
        columns=_columns(given),
        fail_on_data_loss=given_value(_FAIL_ON_DATA_LOSS, given),
        poll_timeout_ms=given_value(_POLL_TIMEOUT, given),
        partitions_min=_optional(_MIN_PARTITIONS, given),
        records_per_partition_max=_optional(_MAX_RECORDS, given),
    )


def read_batch_options(options: Mapping[str, str]) -> BatchOptions:
    given = by_lower_name(options)
    common = read_common(options)
    start = _starting(given, EARLIEST)
    end = _ending(given)
    _refuse(
        start,
        LATEST,
        "startingOffsets",
        "latest (-1)",
        "a batch query ends at the latest offset and cannot begin there",
    )
    _refuse(end, EARLIEST, "endingOffsets", "earliest (-2)", "a batch query begins there and cannot end there")
    if common.client is not None:
        _refuse(
            end, LOG_END, "endingOffsets", "log_end", "the brokers say where a log ends; it is for a path without them"
        )
    takes_conditions = given_value(_PUSH_DOWN, given)
    return BatchOptions(common=common, start=start, end=end, is_view=_is_view(given), takes_conditions=takes_conditions)


def read_stream_options(options: Mapping[str, str]) -> StreamOptions:
    given = by_lower_name(options)
    common = read_common(options)
    if "view" in given:
        raise ConfigError("view is for batch queries: a stream gives every record as it comes")
    if given_value(_PUSH_DOWN, given):
        raise ConfigError("pushDown is for batch queries: Spark hands a stream no conditions")
    if common.client is None:
        raise ConfigError("a stream needs the option kafka.bootstrap.servers: files alone do not say what is new")
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise ConfigError(f"{name} is for batch queries: a stream has no end")
    limit, least = _optional(_MAX_OFFSETS, given), _optional(_MIN_OFFSETS, given)
    if limit is not None and least is not None and least > limit:
        raise ConfigError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={limit}")
    return StreamOptions(
        common=common,
        start=_starting(given, LATEST),
        offsets_per_trigger_max=limit,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=_duration("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
        group_id=given.get("kafka.group.id") or None,
    )


def _is_view(given: Mapping[str, str]) -> bool:
    if _optional(_VIEW, given) is None:
        return False
    if given.get("kafka.isolation.level", "read_committed") != "read_committed":
        raise ConfigError(
            "view=latest needs kafka.isolation.level=read_committed: the cleaner removes what was aborted, and the view is "
            "the same before and after it"
        )
    return True


def by_lower_name(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def given_value(key: ConfigKey[T], given: Mapping[str, str]) -> T:
    return key.read(given[key.name.lower()]) if key.name.lower() in given else key.default


def _optional(key: ConfigKey[T], given: Mapping[str, str]) -> T | None:
    return key.read(given[key.name.lower()]) if key.name.lower() in given else None


def refuse_mistakes(given: Mapping[str, str], names: Sequence[str], fixed: Mapping[str, str]) -> None:
    """A misspelt name would be passed over in silence. Names that resemble none of ours are Spark's or a catalog's."""
    for name, reason in fixed.items():
        if name in given:
            raise ConfigError(f"the option {name} cannot be set: {reason}")
    if any(name.startswith(_TABLE_PREFIX) for name in given):
        raise ConfigError(
            "Spark's catalog keeps a table's options from sources in Python: CREATE TEMPORARY VIEW … USING penstock OPTIONS (…) "
            "hands them over"
        )
    known = {name.lower(): name for name in names}
    for name in given:
        if name in known or name.startswith(KAFKA_PREFIX):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            raise ConfigError(f"there is no option {name}: is {known[near[0]]} meant?")


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in STRATEGIES if name.lower() in given]
    if len(chosen) != 1:
        found = "none of them is" if not chosen else f"{' and '.join(chosen)} are"
        raise ConfigError(f"one of subscribe, assign and subscribePattern says what to read: {found} given")
    raw = given[chosen[0].lower()].strip()
    if chosen[0] == "subscribePattern":
        if not raw:
            raise ConfigError("subscribePattern is empty: it is a regular expression for topic names")
        return Subscription(pattern=raw)
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in raw.split(",") if name.strip()))
        if not topics:
            raise ConfigError("subscribe is empty: it names topics, separated by commas")
        return Subscription(topics=topics)
    return Subscription(partitions=_assigned(raw))


def _assigned(raw: str) -> tuple[TopicPartition, ...]:
    complaint = ConfigError(f'assign={raw!r} is not like {{"topicA":[0,1],"topicB":[2]}}')
    try:
        parsed = json.loads(raw)
    except ValueError:
        raise complaint from None
    partitions: list[TopicPartition] = []
    if not isinstance(parsed, dict):
        raise complaint
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise complaint
        partitions += (TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise complaint
    return tuple(dict.fromkeys(partitions))


def _path(given: Mapping[str, str]) -> str:
    """As Spark writes paths too, with the scheme of this machine's files."""
    path = re.sub(r"\Afile:(//(?=/))?", "", given.get("path", ""))
    if re.match(r"[A-Za-z][\w+.-]*:/", path):
        raise ConfigError(f"path={path!r} is not on this machine: a log directory is read from a local file system")
    return path.rstrip("/")


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = given_value(_INCLUDE_HEADERS, given)
    if "columns" not in given:
        return tuple(name for name in COLUMNS if name != "headers" or with_headers)
    wanted = [name.strip() for name in given["columns"].split(",")]
    by_lower_name = {name.lower(): name for name in COLUMNS}
    unknown = [name for name in wanted if name.lower() not in by_lower_name]
    if unknown or len({name.lower() for name in wanted}) != len(wanted):
        fault = f"{unknown[0]!r} is none" if unknown else "one is named twice"
        raise ConfigError(f"columns={given['columns']!r}: {fault} of {', '.join(COLUMNS)}")
    return tuple(by_lower_name[name.lower()] for name in wanted)


def _starting(given: Mapping[str, str], default: int) -> Bound:
    else_latest = given_value(_UNMATCHED, given) == "latest"
    timestamp = _optional(_STARTING_TIMESTAMP, given)
    if timestamp is not None:
        return AtTime(timestamp_ms=timestamp, else_latest=else_latest)
    if "startingoffsetsbytimestamp" in given:
        name = "startingOffsetsByTimestamp"
        return AtTimes(timestamps_ms=_by_partition(name, given[name.lower()], 0), else_latest=else_latest)
    return _offsets("startingOffsets", given, default)


def _ending(given: Mapping[str, str]) -> Bound:
    timestamp = _optional(_ENDING_TIMESTAMP, given)
    if timestamp is not None:
        return AtTime(timestamp_ms=timestamp, else_latest=True)
    if "endingoffsetsbytimestamp" in given:
        name = "endingOffsetsByTimestamp"
        return AtTimes(timestamps_ms=_by_partition(name, given[name.lower()], 0), else_latest=True)
    return _offsets("endingOffsets", given, LATEST)


def _offsets(name: str, given: Mapping[str, str], default: int) -> Bound:
    raw = given.get(name.lower(), "").strip()
    if not raw:
        return AtOffset(which=default)
    words = {"earliest": EARLIEST, "latest": LATEST, **({"log_end": LOG_END} if name == "endingOffsets" else {})}
    if raw.lower() in words:
        return AtOffset(which=words[raw.lower()])
    return AtOffsets(offsets=_by_partition(name, raw, EARLIEST))


def _by_partition(name: str, raw: str, lowest: int) -> dict[TopicPartition, int]:
    words = "earliest, latest or like " if lowest < 0 else "like "
    complaint = ConfigError(f'{name}={raw!r} is not {words}{{"topicA":{{"0":23,"1":{-1 if lowest < 0 else 42}}}}}')
    try:
        parsed = json.loads(raw)
    except ValueError:
        raise complaint from None
    values: dict[TopicPartition, int] = {}
    if not isinstance(parsed, dict):
        raise complaint
    for topic, by_number in parsed.items():
        if not isinstance(by_number, dict):
            raise complaint
        for number, value in by_number.items():
            if not number.isdecimal() or type(value) is not int or not lowest <= value < 2**63:
                raise complaint
            values[TopicPartition(topic, int(number))] = value
    return values


def _refuse(bound: Bound, which: int, name: str, shown: str, reason: str) -> None:
    named = isinstance(bound, AtOffset) and bound.which == which
    if named or (isinstance(bound, AtOffsets) and which in bound.offsets.values()):
        raise ConfigError(f"{name} may not be {shown}: {reason}")


def _duration(name: str, raw: str) -> int:
    match = _DURATION.match(raw.strip().lower())
    if match is None:
        raise ConfigError(f"{name}={raw!r} is not a time like 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNIT_MS[match[2]]
