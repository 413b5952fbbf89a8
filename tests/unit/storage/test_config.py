"""Configuration of a log: defaults, bounds, synonyms, retired keys (row S22)."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigError
from penstock.records.batch import Codec
from penstock.storage import config
from penstock.storage.config import (
    BROKER_KEYS,
    RETIRED_KEYS,
    TOPIC_KEYS,
    broker_defaults,
    check_changes,
    log_config,
    read_topic_config,
    stored_log_config,
)

HOUR_MS = 3_600_000
LONG_MAX = 2**63 - 1


def test_the_defaults_are_kafka_4_3s() -> None:
    # Beside each other, so that a change of one is seen; compared with a running Kafka by the judges.
    assert {name: key.default for name, key in TOPIC_KEYS.items()} == {
        "cleanup.policy": ("delete",),
        "compression.type": "producer",
        "compression.gzip.level": -1,
        "compression.lz4.level": 9,
        "compression.zstd.level": 3,
        "delete.retention.ms": 24 * HOUR_MS,
        "file.delete.delay.ms": 60_000,
        "flush.messages": LONG_MAX,
        "flush.ms": LONG_MAX,
        "index.interval.bytes": 4096,
        "max.compaction.lag.ms": LONG_MAX,
        "max.message.bytes": 1_048_588,
        "message.timestamp.after.max.ms": HOUR_MS,
        "message.timestamp.before.max.ms": LONG_MAX,
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": 0.5,
        "min.compaction.lag.ms": 0,
        "min.insync.replicas": 1,
        "preallocate": False,
        "retention.bytes": -1,
        "retention.ms": 168 * HOUR_MS,
        "segment.bytes": 1 << 30,
        "segment.index.bytes": 10 << 20,
        "segment.jitter.ms": 0,
        "segment.ms": 168 * HOUR_MS,
        "unclean.leader.election.enable": False,
        "leader.replication.throttled.replicas": (),
        "follower.replication.throttled.replicas": (),
        "remote.storage.enable": False,
        "remote.log.copy.disable": False,
        "remote.log.delete.on.disable": False,
        "local.retention.bytes": -2,
        "local.retention.ms": -2,
    }


@pytest.mark.parametrize(
    ("name", "lowest"),
    [
        ("segment.bytes", 14),  # 3.9's bound
        ("segment.ms", 1),  # KAFKA-6637: 0 divided the jitter by nothing
        ("segment.jitter.ms", 0),
        ("segment.index.bytes", 4),
        ("index.interval.bytes", 0),
        ("flush.messages", 1),
        ("flush.ms", 0),
        ("retention.ms", -1),
        ("retention.bytes", -1),
        ("max.message.bytes", 0),
        ("delete.retention.ms", 0),
        ("file.delete.delay.ms", 0),
        ("max.compaction.lag.ms", 1),
        ("min.compaction.lag.ms", 0),
        ("min.insync.replicas", 1),
        ("min.cleanable.dirty.ratio", 0),
    ],
)
def test_each_lower_bound_is_taken_and_what_lies_below_is_refused_by_name(name: str, lowest: int) -> None:
    assert read_topic_config({name: str(lowest)}) == {name: lowest}
    with pytest.raises(ConfigError, match=name):
        read_topic_config({name: str(lowest - 1)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1_000"),
        ("segment.bytes", "+-100"),
        ("segment.bytes", "1e3"),
        ("segment.bytes", ""),
        ("retention.ms", "9223372036854775808"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("cleanup.policy", "compact,forget"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("message.timestamp.type", "logappendtime"),
        ("preallocate", "yes"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_with_its_key_and_text(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_topic_config({name: value})
    assert name in str(refusal.value)
    assert repr(value) in str(refusal.value)


def test_a_key_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"segment\.megabytes"):
        log_config({"segment.megabytes": "1"})


@pytest.mark.parametrize("name", sorted(RETIRED_KEYS))
def test_a_retired_key_is_named_and_no_reason_to_refuse(name: str, caplog: pytest.LogCaptureFixture) -> None:
    config._name_retired.cache_clear()
    assert log_config({name: "anything"}) == log_config()
    assert log_config({name: "anything"}) == log_config()
    assert [record.getMessage() for record in caplog.records] == [
        f"{name} is a key of older Kafkas: it has no effect here"
    ], "once, however many partitions ask"


# Synonyms.
@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.minutes": "5", "log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-9"}, -1),
        ({"log.retention.hours": "2147483647"}, 2147483647 * HOUR_MS),
    ],
)
def test_for_retention_ms_beats_minutes_beats_hours(settings: dict[str, str], value: int) -> None:
    assert broker_defaults(settings) == {"retention.ms": value}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"log.roll.hours": "3"}, "segment.ms", 3 * HOUR_MS),
        ({"log.roll.hours": "3", "log.roll.ms": "9"}, "segment.ms", 9),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", HOUR_MS),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "4"}, "segment.jitter.ms", 4),
        ({"log.flush.scheduler.interval.ms": "50"}, "flush.ms", 50),
        ({"log.flush.scheduler.interval.ms": "50", "log.flush.interval.ms": "60"}, "flush.ms", 60),
        ({"log.flush.interval.messages": "10"}, "flush.messages", 10),
        ({"log.segment.bytes": "100"}, "segment.bytes", 100),
        ({"log.index.size.max.bytes": "80"}, "segment.index.bytes", 80),
        ({"log.segment.delete.delay.ms": "0"}, "file.delete.delay.ms", 0),
        ({"log.cleaner.min.cleanable.ratio": "0.1"}, "min.cleanable.dirty.ratio", 0.1),
        ({"message.max.bytes": "500"}, "max.message.bytes", 500),
        ({"log.cleanup.policy": "compact, delete"}, "cleanup.policy", ("compact", "delete")),
        ({"compression.type": "zstd"}, "compression.type", "zstd"),
    ],
)
def test_a_brokers_key_gives_the_topics_key_its_default(settings: dict[str, str], name: str, value: object) -> None:
    assert broker_defaults(settings) == {name: value}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.roll.hours", "0"),  # KAFKA-6637 by another door
        ("log.roll.ms", "0"),
        ("log.roll.hours", "-1"),
        ("log.roll.jitter.hours", "-1"),
        ("log.roll.hours", "2147483648"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
        ("log.segment.bytes", "13"),
    ],
)
def test_a_brokers_key_is_held_to_the_bounds_and_named_as_it_was_given(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        broker_defaults({name: value})
    assert str(refusal.value).startswith(f"{name}={value!r}")


def test_a_topics_own_value_beats_the_brokers_which_beats_kafkas_default() -> None:
    defaults = broker_defaults({"log.segment.bytes": "1000", "log.retention.ms": "5"})
    config = log_config({"segment.bytes": "2000"}, defaults)
    assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (2000, 5, 1_048_588)
    assert config.values["segment.bytes"] == 2000


def test_every_synonym_names_one_topic_key() -> None:
    seen: dict[str, str] = {}
    for key in TOPIC_KEYS.values():
        for synonym in key.synonyms:
            assert seen.setdefault(synonym, key.name) == key.name
    assert "log.dirs" in BROKER_KEYS


# What the values mean together.
def test_policies_may_stand_together_and_none_keeps_everything() -> None:
    both = log_config({"cleanup.policy": "compact,delete"})
    assert (both.compact, both.delete) == (True, True)
    assert (log_config().compact, log_config().delete) == (False, True)
    none = log_config({"cleanup.policy": ""})
    assert (none.compact, none.delete) == (False, False)


def test_a_compacted_topic_rolls_within_its_largest_compaction_lag() -> None:
    values = {"max.compaction.lag.ms": "1000", "segment.ms": "5000"}
    assert log_config({**values, "cleanup.policy": "compact"}).segment_ms == 1000
    assert log_config(values).segment_ms == 5000
    assert log_config({"cleanup.policy": "compact", "segment.ms": "77"}).segment_ms == 77


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
        ("snappy", Codec.SNAPPY, None),
    ],
)
def test_the_codec_comes_with_its_level(name: str, codec: Codec | None, level: int | None) -> None:
    config = log_config({"compression.type": name})
    assert (config.codec, config.codec_level) == (codec, level)


def test_what_a_store_says_counts_as_far_as_it_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    config._name_ignored.cache_clear()
    stored = {"retention.ms": "5", "of.a.later.version": "1", "segment.bytes": "few"}
    for _ in range(2):
        found = stored_log_config(stored, {"segment.bytes": 2_000_000})
    assert (found.retention_ms, found.segment_bytes) == (5, 2_000_000)
    assert [sum(name in line for line in caplog.messages) for name in stored] == [0, 1, 1], "each is named once"


def test_what_a_topic_has_already_does_not_keep_it_from_being_changed() -> None:
    present = {"of.a.later.version": "1"}
    check_changes(present, {**present, "retention.ms": "5"})
    for bad in ({"of.a.later.version": "2"}, {**present, "retention.ms": "often"}):
        with pytest.raises(ConfigError):
            check_changes(present, bad)
