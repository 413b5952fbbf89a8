"""To which offsets Apache Kafka recovers a log directory, its own or one that Penstock wrote.

A broker removes partitions that its cluster does not know, so a foreign directory is *adopted*: a fresh broker creates
the topics with as many partitions and stops; then the partition directories and the checkpoints are put in the place of
its own, each with the `partition.metadata` of its new topic, and the clean marker only if the foreign directory has
one. The next start finds what it takes for its own logs and recovers them. To which offsets is read in the broker's
log, which says so of each partition before anything else can be appended: a transaction coordinator, for one, ends what
it finds half ended, and its markers move the end.
"""

import shutil
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import kafka_reads, processes
from tests.support.kafka_jvm import KafkaBroker, copy_data_dir, partitions_on_disk
from tests.support.kafka_log import Start
from tests.support.kafka_reads import ReadPartition, client_config

_CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
CLEAN_MARKER = ".kafka_cleanshutdown"


def kafka_recovers(version: str, log_dir: Path, work_dir: Path, **server_properties: Any) -> Start:
    """How Kafka starts on a copy of `log_dir`, whoever wrote it: `.logs["topic-0"].end_offset`, `.loading_ms`.

    `work_dir` must not exist. The copy stays in `work_dir/logs` as Kafka left it after a clean stop.
    """
    with adopt(version, log_dir, work_dir, **server_properties) as broker:
        return broker.starts()[-1]


def kafka_recovers_its_own(version: str, data_dir: Path, work_dir: Path, **server_properties: Any) -> Start:
    """The same for a whole data directory that a `KafkaBroker` of this version left: it knows its topics already."""
    with KafkaBroker(version, copy_data_dir(data_dir, work_dir), **server_properties) as broker:
        return broker.starts()[-1]


def kafka_reads_all(version: str, log_dir: Path, work_dir: Path, **server_properties: Any) -> dict[str, ReadPartition]:
    """What consumers read when Kafka serves a copy of `log_dir`.

    Kafka's own topics stay behind, or the transaction coordinator would end transactions that the log shows as open.
    """
    with adopt(version, log_dir, work_dir, internal_topics=False, **server_properties) as broker:
        return kafka_reads.read_all(broker.bootstrap_servers)


def adopt(
    version: str, log_dir: Path, work_dir: Path, *, internal_topics: bool = True, **server_properties: Any
) -> KafkaBroker:
    """A broker, not yet started, whose data directory holds a copy of `log_dir` as if it were its own."""
    adopted = {
        name: (topic, number)
        for name, (topic, number) in partitions_on_disk(log_dir).items()
        if internal_topics or not topic.startswith("__")
    }
    counts: dict[str, int] = {}
    for topic, number in adopted.values():
        counts[topic] = max(counts.get(topic, 0), number + 1)
    work_dir.mkdir(parents=True)
    properties: dict[str, Any] = {
        "offsets_topic_num_partitions": counts.get("__consumer_offsets", 1),
        "transaction_state_log_num_partitions": counts.get("__transaction_state", 1),
        **server_properties,
    }
    broker = KafkaBroker(version, work_dir, **properties)
    with broker:
        admin = AdminClient(client_config(broker.bootstrap_servers))
        topics = [NewTopic(topic, count, 1) for topic, count in counts.items()]
        for future in (admin.create_topics(topics) if topics else {}).values():
            future.result(60)
        _wait_for_directories(broker, counts)
    for name in adopted:
        metadata = (broker.log_dir / name / "partition.metadata").read_bytes()
        shutil.rmtree(broker.log_dir / name)
        shutil.copytree(log_dir / name, broker.log_dir / name)
        (broker.log_dir / name / "partition.metadata").write_bytes(metadata)
    for checkpoint in (*_CHECKPOINTS, CLEAN_MARKER):
        (broker.log_dir / checkpoint).unlink(missing_ok=True)
        if (log_dir / checkpoint).exists():
            shutil.copyfile(log_dir / checkpoint, broker.log_dir / checkpoint)
    return broker


def _wait_for_directories(broker: KafkaBroker, counts: dict[str, int]) -> None:
    names = [f"{topic}-{number}" for topic, count in counts.items() for number in range(count)]
    processes.wait_until(
        lambda: all((broker.log_dir / name / "partition.metadata").exists() for name in names),
        seconds=60,
        what="the broker has made its partitions",
    )
