"""Rows straight from log directories, live or copied: the same rows, or a sentence that names the path and the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.base.errors import ConfigError
from penstock.client.errors import UnknownTopicError
from penstock.storage.live.errors import LiveLogError
from pyspark_penstock import ways
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.options import read_batch_options, read_stream_options
from pyspark_penstock.planning import DataLossError
from pyspark_penstock.ranges import TopicRange
from tests.pipelines.test_batch import expected_rows
from tests.pipelines.topics import Row, new_topic, send, table_rows
from tests.support.kafka_directories import KafkaDirectory
from tests.support.kafka_reads import ISOLATION_LEVELS
from tests.support.served_broker import ServedBroker


def read(**options: str) -> list[Row]:
    """As Spark does, here: plan, then read each range."""
    reader = BatchReader(read_batch_options({name.replace("__", "."): value for name, value in options.items()}))
    batches = [batch for one in reader.partitions() for batch in reader.read(one)]
    return table_rows(pa.Table.from_batches(batches)) if batches else []


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_a_directory_without_its_broker_gives_the_rows_that_kafkas_consumer_reads(
    kafka_directory: KafkaDirectory, isolation_level: str
) -> None:
    before = contents(kafka_directory.log_dir)
    found = read(
        path=str(kafka_directory.log_dir),
        subscribePattern=".*",
        includeHeaders="true",
        kafka__isolation__level=isolation_level,
    )
    assert found == expected_rows(kafka_directory, isolation_level)
    assert contents(kafka_directory.log_dir) == before, "a reader changes nothing"


def test_what_a_killed_broker_left_is_read_to_the_last_whole_batch(killed_kafka_directory: KafkaDirectory) -> None:
    found = read(
        path=str(killed_kafka_directory.log_dir), subscribePattern=".*", includeHeaders="true", endingOffsets="log_end"
    )
    assert found == expected_rows(killed_kafka_directory, "read_uncommitted")


def test_times_lead_to_offsets_without_a_broker(kafka_directory: KafkaDirectory) -> None:
    every = [row for row in expected_rows(kafka_directory, "read_uncommitted") if row.topic == "small-segments"]
    middle = sorted(row.timestamp for row in every)[len(every) // 2]
    first = {row.partition: row.offset for row in reversed(every) if row.timestamp >= middle}
    found = read(path=str(kafka_directory.log_dir), subscribe="small-segments", startingTimestamp=str(middle))
    assert found == [
        row._replace(headers=()) for row in every if row.partition in first and row.offset >= first[row.partition]
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("segments-penstock")) as made:
        yield made


@pytest.fixture(scope="module")
def topic(broker: ServedBroker) -> str:
    name = new_topic(broker.bootstrap_servers)
    send(broker.bootstrap_servers, name, [b"%d" % n for n in range(100)])
    return name


def values(found: list[Row]) -> list[bytes | None]:
    return [row.value for row in found]


ALL = [b"%d" % n for n in range(100)]


def test_auto_reads_files_where_they_are_at_hand(
    broker: ServedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wanted: TopicRange, options: object) -> None:
        raise AssertionError(f"{wanted} was asked for over the wire")

    monkeypatch.setattr(ways, "read_wire", refuse)
    found = read(kafka__bootstrap__servers=broker.bootstrap_servers, subscribe=topic)
    assert values(found) == ALL


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("no directory", "is no directory of this machine"),
        ("another cluster", "meta.properties says another, where cluster .* is asked for"),
        ("another node", "meta.properties says 77, where node .* is asked for"),
        ("another topic", "partition.metadata says AAAAAAAAAAAAAAAAAAAAAQ, where topic id .* is asked for"),
        ("no partition", "-0 is not there"),
        ("no segment", "offsets 0 to 99 of .*-0 were to be read, but .* is no longer in the log"),
        ("cut off", r"offsets \d+ to 99 of .*-0 were to be read, but .* which now holds"),
    ],
)
def test_segments_says_path_and_reason_where_auto_goes_by_wire(
    broker: ServedBroker, topic: str, tmp_path: Path, spoil: str, reason: str
) -> None:
    copy = tmp_path / "copy"
    spoiled_copy(broker.data, copy, topic, spoil)
    options = {"kafka__bootstrap__servers": broker.bootstrap_servers, "subscribe": topic, "path": str(copy)}
    with pytest.raises((LiveLogError, DataLossError), match=reason) as error:
        read(mode="segments", **options)
    assert str(copy) in str(error.value)
    assert values(read(mode="auto", **options)) == ALL


def spoiled_copy(data: Path, copy: Path, topic: str, spoil: str) -> None:
    if spoil == "no directory":
        return
    shutil.copytree(data, copy)
    meta, partition = copy / "meta.properties", copy / f"{topic}-0"
    lines = meta.read_text().splitlines()
    if spoil == "another cluster":
        meta.write_text("\n".join("cluster.id=another" if line.startswith("cluster.id") else line for line in lines))
    elif spoil == "another node":
        meta.write_text("\n".join("node.id=77" if line.startswith("node.id") else line for line in lines))
    elif spoil == "another topic":
        (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    elif spoil == "no partition":
        shutil.rmtree(partition)
    elif spoil == "no segment":
        for path in partition.glob("*.log"):
            path.unlink()
    elif spoil == "cut off":
        (log,) = partition.glob("*.log")
        log.write_bytes(log.read_bytes()[:-1])


def test_what_is_gone_is_passed_over_if_that_is_allowed(kafka_directory: KafkaDirectory, tmp_path: Path) -> None:
    """The range was planned while the first segments were still there."""
    copy = kafka_directory.copy_logs(tmp_path / "copy")
    options = {"path": str(copy), "subscribe": "small-segments"}
    strict = BatchReader(read_batch_options(options))
    lenient = BatchReader(read_batch_options({**options, "failOnDataLoss": "false"}))
    planned = [one for one in strict.partitions() if isinstance(one, TopicRange)]
    segments = sorted((copy / "small-segments-0").glob("*.log"))
    for path in segments[:3]:
        path.rename(f"{path}.deleted")
    left = int(segments[3].name.partition(".")[0])
    wanted = next(one for one in planned if one.partition == 0)
    with pytest.raises(DataLossError, match=rf"offset 0 is no longer in the log, which now holds \[{left}, "):
        list(strict.read(wanted))
    offsets = [n for batch in lenient.read(wanted) for n in batch.column("offset").to_pylist()]
    assert offsets == list(range(left, wanted.end_offset))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "nothing"}, "has no partition of topic nothing"),
        ({"assign": '{"trimmed":[9]}'}, "assign names the partition trimmed-9, which .* does not have"),
    ],
)
def test_what_a_path_does_not_have_is_said(
    kafka_directory: KafkaDirectory, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UnknownTopicError, match=sentence):
        read(path=str(kafka_directory.log_dir), **options)


def test_a_path_that_is_no_log_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(LiveLogError, match=f"{tmp_path}/none: No such file"):
        read(path=f"{tmp_path}/none", subscribe="t")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "wire", "path": "/logs"}, "mode=wire needs the option kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "h:1", "endingOffsets": "log_end"}, "endingOffsets may not be log_end"),
        ({"kafka.bootstrap.servers": "h:1", "mode": "files"}, "mode='files' must be one of auto, segments, wire"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_batch_options({"subscribe": "t", **options})


def test_a_stream_needs_brokers() -> None:
    with pytest.raises(ConfigError, match=r"a stream needs the option kafka.bootstrap.servers"):
        read_stream_options({"subscribe": "t", "path": "/logs"})
