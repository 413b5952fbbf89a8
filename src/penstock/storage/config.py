"""Configuration of a log (row S22): topic keys, and the broker keys that give them their defaults.

Defaults are Kafka 4.3's, bounds Kafka 3.9's. Of the keys for time `.ms` beats `.minutes` beats `.hours`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from penstock.base.config import LONG_MAX, ConfigKey, boolean, integer, number, table, text, text_list
from penstock.base.errors import ConfigError
from penstock.records.batch import Codec

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
_WEEK_MS = 168 * _HOUR_MS
_TO_MS = {"hours": _HOUR_MS, "minutes": 60_000, "ms": 1}
_REPLICA = re.compile(r"\d+:\d+", re.ASCII)


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "must be -1, or from 1 to 9"


def _throttled(replicas: tuple[str, ...]) -> str | None:
    if replicas == ("*",) or all(_REPLICA.fullmatch(replica) for replica in replicas):
        return None
    return "must be *, or partition:broker, separated by commas"


TOPIC_KEYS: Mapping[str, ConfigKey[Any]] = table(
    text_list(
        "cleanup.policy",
        ("delete",),
        "What happens to old data: deleted when it is too old or too much, compacted by key, both, or (empty) nothing.",
        choices=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
    ),
    text(
        "compression.type",
        "producer",
        "How batches are kept: as the producer compressed them, or recompressed with this codec.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
    ),
    replace(
        integer(
            "compression.gzip.level",
            -1,
            "Level for gzip when the broker recompresses.",
            synonyms=("compression.gzip.level",),
        ),
        check=_gzip_level,
        valid="[-1, 1, ..., 9]",
    ),
    integer(
        "compression.lz4.level",
        9,
        "Level for lz4 when the broker recompresses.",
        low=1,
        high=17,
        synonyms=("compression.lz4.level",),
    ),
    integer(
        "compression.zstd.level",
        3,
        "Level for zstd when the broker recompresses.",
        low=-131072,
        high=22,
        synonyms=("compression.zstd.level",),
    ),
    integer(
        "delete.retention.ms",
        24 * _HOUR_MS,
        "How long a tombstone stays readable after compaction has met it.",
        bits=64,
        low=0,
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    integer(
        "file.delete.delay.ms",
        60_000,
        "How long files stay after they were renamed for deletion.",
        bits=64,
        low=0,
        synonyms=("log.segment.delete.delay.ms",),
    ),
    integer(
        "flush.messages",
        LONG_MAX,
        "After this many records without an fsync, an append waits for one.",
        bits=64,
        low=1,
        synonyms=("log.flush.interval.messages",),
    ),
    integer(
        "flush.ms",
        LONG_MAX,
        "The log is synced behind the writes at least this often.",
        bits=64,
        low=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    integer(
        "index.interval.bytes",
        4096,
        "Bytes of log between two index entries.",
        low=0,
        synonyms=("log.index.interval.bytes",),
    ),
    integer(
        "max.compaction.lag.ms",
        LONG_MAX,
        "A record is compacted at the latest this long after it was written.",
        bits=64,
        low=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    integer(
        "max.message.bytes", 1_048_588, "Largest batch, after compression.", low=0, synonyms=("message.max.bytes",)
    ),
    integer(
        "message.timestamp.after.max.ms",
        _HOUR_MS,
        "How far ahead of the broker's clock a record's timestamp may lie.",
        bits=64,
        low=0,
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    integer(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far behind the broker's clock a record's timestamp may lie.",
        bits=64,
        low=0,
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    text(
        "message.timestamp.type",
        "CreateTime",
        "Whose clock stamps the records: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    ),
    number(
        "min.cleanable.dirty.ratio",
        0.5,
        "Share of the log not yet compacted from which compaction starts.",
        low=0,
        high=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    integer(
        "min.compaction.lag.ms",
        0,
        "A record stays uncompacted at least this long.",
        bits=64,
        low=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    integer(
        "min.insync.replicas",
        1,
        "Replicas that must have a record before acks=all answers; fewer refuse the write.",
        low=1,
        synonyms=("min.insync.replicas",),
    ),
    boolean(
        "preallocate", False, "Whether a new segment's file is made at its full size.", synonyms=("log.preallocate",)
    ),
    integer(
        "retention.bytes",
        -1,
        "Size of a partition above which old segments go; -1: no limit.",
        bits=64,
        low=-1,
        synonyms=("log.retention.bytes",),
    ),
    integer(
        "retention.ms",
        _WEEK_MS,
        "Age of a segment's newest record at which it goes; -1: never.",
        bits=64,
        low=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    integer(
        "segment.bytes",
        1_073_741_824,
        "Size at which a new segment is begun.",
        low=14,
        synonyms=("log.segment.bytes",),
    ),
    integer(
        "segment.index.bytes",
        10_485_760,
        "Size of an active segment's index files.",
        low=4,
        synonyms=("log.index.size.max.bytes",),
    ),
    integer(
        "segment.jitter.ms",
        0,
        "Most that is taken off `segment.ms`, so that segments do not roll together.",
        bits=64,
        low=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    integer(
        "segment.ms",
        _WEEK_MS,
        "Age at which a new segment is begun.",
        bits=64,
        low=1,
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica outside the ISR may lead when no other is left; may lose data.",
        synonyms=("unclean.leader.election.enable",),
    ),
    replace(
        text_list("leader.replication.throttled.replicas", (), "Replicas whose leaders are throttled, or `*`."),
        check=_throttled,
    ),
    replace(
        text_list("follower.replication.throttled.replicas", (), "Replicas whose followers are throttled, or `*`."),
        check=_throttled,
    ),
    replace(
        boolean("remote.storage.enable", False, "Tiered storage: there is none, so this is false."),
        check=lambda wanted: "is not possible: there is no tiered storage here" if wanted else None,
    ),
    boolean("remote.log.copy.disable", False, "Tiered storage: there is none."),
    boolean("remote.log.delete.on.disable", False, "Tiered storage: there is none."),
    integer(
        "local.retention.bytes",
        -2,
        "Tiered storage: there is none.",
        bits=64,
        low=-2,
        synonyms=("log.local.retention.bytes",),
    ),
    integer(
        "local.retention.ms",
        -2,
        "Tiered storage: there is none.",
        bits=64,
        low=-2,
        synonyms=("log.local.retention.ms",),
    ),
)

BROKER_KEYS: Mapping[str, ConfigKey[Any]] = table(
    text_list("log.dirs", (), "Directories for the logs; a partition lies in one of them.", dynamic=False),
    text("log.dir", "", "One log directory, where `log.dirs` is not set.", dynamic=False),
    integer(
        "num.recovery.threads.per.data.dir", 2, "Threads per directory for loading and recovery at the start.", low=1
    ),
    integer(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are written.", low=0, dynamic=False
    ),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often log start offsets are written.",
        low=0,
        dynamic=False,
    ),
    integer(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often high watermarks are written.",
        bits=64,
        dynamic=False,
    ),
    integer(
        "log.retention.check.interval.ms", 300_000, "How often retention looks for old segments.", bits=64, low=1,
        dynamic=False,
    ),
    integer(
        "log.flush.scheduler.interval.ms", LONG_MAX, "How often `flush.ms` is looked at.", bits=64, dynamic=False
    ),
    integer("log.cleaner.threads", 1, "Compactions at a time.", low=0),
    integer(
        "log.cleaner.dedupe.buffer.size", 134_217_728, "Memory for the offset maps of all compactions.", bits=64
    ),
    integer("log.cleaner.io.buffer.size", 524_288, "Memory for the buffers of all compactions.", low=0),
    integer("log.cleaner.backoff.ms", 15_000, "Pause when there is nothing to compact.", bits=64, low=0),
    boolean("log.cleaner.enable", True, "Whether compaction runs at all.", dynamic=False),
    integer(
        "producer.id.expiration.ms", 86_400_000, "A producer silent for this long is forgotten.", low=1
    ),
)  # fmt: skip


def _synonym_keys() -> Mapping[str, ConfigKey[Any]]:
    """The broker keys that give topic keys their defaults, each as a key of its own. Of several the last has the default."""
    keys: dict[str, ConfigKey[Any]] = {}
    for key in TOPIC_KEYS.values():
        for name in key.synonyms:
            if name in BROKER_KEYS:
                continue
            unit = name.rpartition(".")[2]
            default = None
            if name == key.synonyms[-1]:
                default = key.default // _TO_MS[unit] if unit in _TO_MS else key.default
            keys[name] = replace(
                key,
                name=name,
                parse=partial(_read_synonym, key, name),
                type_name="integer" if unit in ("hours", "minutes") else key.type_name,
                default=default,
                doc=f"Default of the topic key `{key.name}`. {key.doc}",
                check=lambda _value: None,
                dynamic=name == key.synonyms[0],
                synonyms=key.synonyms,
            )
    return keys


RETIRED_KEYS = frozenset(
    {
        "message.format.version",
        "log.message.format.version",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
        "message.downconversion.enable",
        "log.message.downconversion.enable",
        "inter.broker.protocol.version",
    }
)
"""Known to older Kafkas; named to the user, never fatal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's configuration, ready to use. `values` holds every topic key with its parsed value."""

    values: Mapping[str, Any] = field(default_factory=dict)
    segment_bytes: int
    segment_ms: int
    """At most `max.compaction.lag.ms` where the topic is compacted: an active segment is never cleaned."""
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    preallocate: bool
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    file_delete_delay_ms: int
    compact: bool
    delete: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    codec: Codec | None
    codec_level: int | None
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int


@cache
def _name_retired(name: str) -> None:
    """Once a process: a topic that was made long ago may carry the key, and each of its partitions asks."""
    logger.warning("%s is a key of older Kafkas: it has no effect here", name)


def read_topic_config(overrides: Mapping[str, str]) -> dict[str, Any]:
    """Parsed values of topic keys as a user gave them; ConfigError names the first bad or unknown one."""
    values = {}
    for name, raw in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            if name in RETIRED_KEYS:
                _name_retired(name)
                continue
            raise ConfigError(f"{name} is not a topic configuration key")
        values[name] = key.read(raw)
    return values


def check_changes(present: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """ConfigError where a topic's next configuration has a bad or unknown key that it does not have already."""
    read_topic_config({name: raw for name, raw in wanted.items() if present.get(name) != raw})


def broker_defaults(settings: Mapping[str, str]) -> dict[str, Any]:
    """Values of topic keys that the broker's own settings give, strongest synonym first."""
    defaults = {}
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            raw = settings.get(synonym)
            if raw is None:
                continue
            defaults[key.name] = _read_synonym(key, synonym, raw)
            break
    return defaults


def _read_synonym(key: ConfigKey[Any], synonym: str, raw: str) -> Any:
    """The value that a broker's key gives a topic's: hours and minutes become ms, any negative retention means none."""
    factor = _TO_MS.get(synonym.rpartition(".")[2], 1)
    if key.name == "retention.ms":
        value = factor * integer(synonym, 0, "", bits=64 if factor == 1 else 32).read(raw)
        if value == 0:
            raise ConfigError(f"{synonym}={raw!r} would delete everything at once; it is -1 (never) or at least 1")
        return max(value, -1)
    if factor == 1:
        return replace(key, name=synonym).read(raw)
    value = factor * integer(synonym, 0, "", bits=32).read(raw)
    complaint = key.check(value)
    if complaint is not None:
        raise ConfigError(f"{synonym}={raw!r} is {value} ms: {key.name} {complaint}")
    return value


SYNONYM_KEYS: Mapping[str, ConfigKey[Any]] = _synonym_keys()


def log_config(overrides: Mapping[str, str] | None = None, defaults: Mapping[str, Any] | None = None) -> LogConfig:
    """A log's configuration: the topic's own values, over the broker's, over Kafka's defaults."""
    values = {key.name: key.default for key in TOPIC_KEYS.values()}
    values.update(defaults or {})
    values.update(read_topic_config(overrides or {}))
    compact = "compact" in values["cleanup.policy"]
    compression = values["compression.type"]
    codec = None
    if compression != "producer":
        codec = Codec.NONE if compression == "uncompressed" else Codec[compression.upper()]
    return LogConfig(
        values=values,
        segment_bytes=values["segment.bytes"],
        segment_ms=min(values["segment.ms"], values["max.compaction.lag.ms"]) if compact else values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        max_message_bytes=values["max.message.bytes"],
        preallocate=values["preallocate"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        compact=compact,
        delete="delete" in values["cleanup.policy"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        delete_retention_ms=values["delete.retention.ms"],
        codec=codec,
        codec_level=values.get(f"compression.{compression}.level"),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        min_insync_replicas=values["min.insync.replicas"],
    )


def stored_log_config(stored: Mapping[str, str], defaults: Mapping[str, Any] | None = None) -> LogConfig:
    """The same from what a store says, where a later version or another tool may have written: what is not understood is as if it were not there.

    One topic must not stop the broker that holds it, nor the controller that decides over it among others.
    """
    understood = {}
    for name, raw in stored.items():
        try:
            read_topic_config({name: raw})
            understood[name] = raw
        except ConfigError as error:
            _name_ignored(str(error))
    return log_config(understood, defaults)


@cache
def _name_ignored(why: str) -> None:
    """Once a process, like those that are retired."""
    logger.error("a topic's configuration has what has no effect here: %s", why)
