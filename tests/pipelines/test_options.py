"""Options are read as Spark's own connector reads them, and what is wrong is said in one sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.base.errors import ConfigError
from penstock.base.ids import TopicPartition
from penstock.client.config import Address
from penstock.client.offsets import EARLIEST, LATEST
from pyspark_penstock.options import (
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    Subscription,
    read_batch_options,
    read_common,
    read_stream_options,
)

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def test_what_is_not_given_has_the_connectors_default() -> None:
    options = read_batch_options(BASE)
    common = options.common
    assert common.client is not None
    assert common.client.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert not common.client.read_committed
    assert common.subscription == Subscription(topics=("t",))
    assert common.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (common.fail_on_data_loss, common.partitions_min, common.records_per_partition_max) == (True, None, None)
    assert (options.start, options.end) == (AtOffset(which=EARLIEST), AtOffset(which=LATEST))
    stream = read_stream_options(BASE)
    assert (stream.start, stream.offsets_per_trigger_max) == (AtOffset(which=LATEST), None)
    assert stream.trigger_delay_ms_max == 15 * 60 * 1000


def test_names_are_read_in_any_case() -> None:
    options = {name.upper(): value for name, value in BASE.items()} | {"INCLUDEHEADERS": "TRUE", "MINPARTITIONS": "3"}
    common = read_common(options)
    assert common.columns[-1] == "headers"
    assert common.partitions_min == 3


@pytest.mark.parametrize("path", ["/a b/log", "/a b/log/", "file:/a b/log", "file:///a b/log/"])
def test_a_path_may_be_written_as_spark_writes_it(path: str) -> None:
    assert read_common({"subscribe": "t", "path": path}).path == "/a b/log"


def test_what_to_read_is_named_in_three_ways() -> None:
    servers = {"kafka.bootstrap.servers": "a:1"}
    assert read_common({**servers, "subscribe": " a, b ,a"}).subscription.topics == ("a", "b")
    assert read_common({**servers, "subscribePattern": "a.*"}).subscription.pattern == "a.*"
    assigned = read_common({**servers, "assign": '{"a":[1,0]}'}).subscription.partitions
    assert assigned == (TopicPartition("a", 1), TopicPartition("a", 0))


def test_a_timestamp_beats_timestamps_and_those_beat_offsets() -> None:
    given = BASE | {"startingOffsets": '{"t":{"0":7,"1":-2}}', "endingOffsets": '{"t":{"0":-1}}'}
    options = read_batch_options(given)
    assert options.start == AtOffsets(offsets={TopicPartition("t", 0): 7, TopicPartition("t", 1): EARLIEST})
    assert options.end == AtOffsets(offsets={TopicPartition("t", 0): LATEST})
    given |= {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":9}}'}
    options = read_batch_options(given)
    assert options.start == AtTimes(timestamps_ms={TopicPartition("t", 0): 5}, else_latest=False)
    assert options.end == AtTimes(timestamps_ms={TopicPartition("t", 0): 9}, else_latest=True)
    given |= {"startingTimestamp": "3", "endingTimestamp": "4", "startingOffsetsByTimestampStrategy": "latest"}
    options = read_batch_options(given)
    assert options.start == AtTime(timestamp_ms=3, else_latest=True)
    assert options.end == AtTime(timestamp_ms=4, else_latest=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kafka.bootstrap.servers": None}, "the option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers: 'a' is not host:port"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level='x' must be one of"),
        ({"kafka.auto.offset.reset": "x"}, "kafka.auto.offset.reset cannot be set: startingOffsets says"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer cannot be set: values are binary"),
        ({"subscribe": None}, "none of them is given"),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"assign": "{}"}, "subscribe and assign are given"),
        ({"subscribe": None, "assign": "t-0"}, "assign='t-0' is not like"),
        ({"subscribe": None, "assign": '{"t":[true]}'}, "is not like"),
        ({"startingOffsets": "first"}, "startingOffsets='first' is not earliest, latest or like"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "is not earliest, latest or like"),
        ({"startingOffsets": '{"t":[1]}'}, "is not earliest, latest or like"),
        ({"startingOffsets": "latest"}, "startingOffsets may not be latest (-1)"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets may not be latest (-1)"),
        ({"endingOffsets": "earliest"}, "endingOffsets may not be earliest (-2)"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp='{\"t\":{\"0\":-1}}' is not like"),
        ({"startingTimestamp": "noon"}, "startingTimestamp='noon' is not a valid long"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "must be one of error, latest"),
        ({"minPartitions": "0"}, "minPartitions='0' must be at least 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe' is not a valid boolean"),
        ({"columns": "value,colour"}, "'colour' is none of key, value, topic"),
        ({"columns": "value,VALUE"}, "one is named twice of key"),
        ({"mode": "pigeon"}, "mode='pigeon' must be one of"),
        ({"path": "hdfs://logs"}, "path='hdfs://logs' is not on this machine"),
        ({"startingOffset": "earliest"}, "there is no option startingoffset: is startingOffsets meant?"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_in_a_sentence(changes: dict[str, str | None], sentence: str) -> None:
    options = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    with pytest.raises(ConfigError) as refusal:
        read_batch_options(options)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger=9 is above"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon' is not a time like"),
    ],
)
def test_a_streams_mistake_is_said_in_a_sentence(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_stream_options({**BASE, **changes})
    assert sentence in str(refusal.value)


def test_a_setting_of_kafkas_that_is_not_known_is_passed_over() -> None:
    read_common({**BASE, "kafka.partition.assignment.strategy": "x", "path": "", "serialization.format": "1"})


def test_importing_the_package_loads_nothing_else() -> None:
    program = "import sys, pyspark_penstock; print(*{name.split('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow", "penstock", "kio"} & set(ran.stdout.split())
