"""What Apache Kafka and Penstock are both asked. Topics: `d-data` (two partitions, partition 0 with records), `d-compact`,
`d-empty`, each made anew for every comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.compat.differential_configs import configs
from tests.compat.differential_groups import groups
from tests.compat.differential_names import COMPACT, DATA, EMPTY, NO_ID, T0, UNKNOWN_ID
from tests.support.differential import Case, Values

from penstock.records.build import build_batch


def records(*timestamps: int, key: bytes | None = None) -> bytes:
    return build_batch([(stamp, key, b"v", ()) for stamp in timestamps])


def setup() -> Iterator[Case]:
    for name, partitions, settings in (
        (DATA, 2, {"retention.ms": "-1"}),
        (COMPACT, 1, {"cleanup.policy": "compact"}),
        (EMPTY, 1, {"segment.ms": "100000", "retention.ms": "-1"}),
    ):
        topic = new_topic(name, partitions, configs=settings)
        values = {"topics": [topic], "timeout": 30_000}
        yield Case(name=f"setup {name}", key=19, values=values, versions=range(7, 8), is_change=True)


def alike() -> Case:
    """A new 4.3 has this set for its cluster; so do the others from here on."""
    entry = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    values = {"resources": [{"resource_type": 4, "resource_name": "", "configs": [entry]}]}
    return Case(name="setup cluster", key=44, values=values, versions=range(1, 2), is_change=True)


def fill() -> Iterator[Case]:
    for stamps in ((T0, T0 + 10, T0 + 5), (T0 + 20,), (T0 + 7, T0 + 8)):
        yield Case(
            name="fill", key=0, values=_produce(DATA, 0, records(*stamps)), versions=range(9, 10), is_change=True
        )


def new_topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": number, "broker_ids": brokers} for number, brokers in (assignments or {}).items()
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }


def _produce(topic: str, number: int, data: bytes | None, acks: int = 1) -> Callable[[Any, int], Values]:
    def values(ids: Any, _version: int) -> Values:
        return {
            "acks": acks,
            "timeout": 10_000,
            "transactional_id": None,
            "topic_data": [
                {
                    "name": topic,
                    "topic_id": ids.get(topic, UNKNOWN_ID),
                    "partition_data": [{"index": number, "records": data}],
                }
            ],
        }

    return values


def every_case() -> Iterator[Case]:
    yield from topics()
    yield from metadata()
    yield from produce_and_fetch()
    yield from offsets()
    yield from configs()
    yield from grow()
    yield from cluster()
    yield from groups()
    yield from delete_records()
    yield from delete_topics()


def _create(name: str, *topics: dict[str, Any], only: range = range(100), validate: bool = True) -> Case:
    values = {"topics": list(topics), "timeout": 10_000, "validate_only": validate}
    return Case(name=f"create: {name}", key=19, values=values, versions=only, is_change=True)


def topics() -> Iterator[Case]:
    yield _create("validated", new_topic("d-new"))
    yield _create("with configurations", new_topic("d-new", 3, configs={"cleanup.policy": "compact,delete"}))
    yield _create("exists", new_topic(DATA))
    yield _create("defaults", new_topic("d-new", -1, -1), only=range(4, 99))
    yield _create("nothing")
    for count in (0, -2):
        yield _create(f"{count} partitions", new_topic("d-new", count))
        yield _create(f"{count} replicas", new_topic("d-new", 1, count))
    yield _create("too many replicas", new_topic("d-new", 1, 2))
    yield _create("twice", new_topic("d-new"), new_topic("d-new"))
    yield _create("by hand", new_topic("d-new", -1, -1, assignments={0: [1], 1: [1]}))
    yield _create("by hand with counts", new_topic("d-new", 1, 1, assignments={0: [1]}))
    yield _create("by hand with a gap", new_topic("d-new", -1, -1, assignments={0: [1], 2: [1]}))
    yield _create("by hand, unknown broker", new_topic("d-new", -1, -1, assignments={0: [9]}))
    yield _create("by hand, broker twice", new_topic("d-new", -1, -1, assignments={0: [1, 1]}))
    yield _create("by hand, no broker", new_topic("d-new", -1, -1, assignments={0: []}))
    yield _create("by hand, uneven", new_topic("d-new", -1, -1, assignments={0: [1], 1: [1, 2]}))
    yield _create("collides", new_topic("d.data"), new_topic("d_data"))
    for name in ("", ".", "..", "a/b", "ä", "a b", "x" * 249, "x" * 250, "a\x00b", "__consumer_offsets"):
        yield _create(f"named {name[:12]!r} {len(name)}", new_topic(name))
    for key, value in (
        ("nonsense", "1"),
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("retention.ms", "+5"),
        ("retention.ms", ""),
        ("segment.bytes", "13"),
        ("segment.bytes", "14"),
        ("segment.bytes", "2147483648"),
        ("segment.ms", "0"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("cleanup.policy", " compact , delete "),
        ("compression.type", "brotli"),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "0"),
        ("compression.zstd.level", "23"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("preallocate", "TRUE"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "Never"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "0:1,1:1"),
        ("leader.replication.throttled.replicas", "nonsense"),
        ("unclean.leader.election.enable", "true"),
        ("flush.messages", "0"),
        ("index.interval.bytes", "-1"),
        ("max.message.bytes", "-1"),
    ):
        yield _create(f"{key}={value}", new_topic("d-new", configs={key: value}), only=range(7, 8))
    yield _create("null value", new_topic("d-new", configs={"retention.ms": None}), only=range(7, 8))


def _metadata(name: str, topics: list[dict[str, Any]] | None, **more: Any) -> Case:
    values = {"topics": topics, "allow_auto_topic_creation": False, **more}
    low = 1 if topics is None else 0
    return Case(name=f"metadata: {name}", key=3, values=values, versions=range(low, 100))


def metadata() -> Iterator[Case]:
    yield _metadata("one", [{"name": DATA}])
    yield _metadata("missing", [{"name": "d-missing"}, {"name": DATA}])
    yield _metadata("bad names", [{"name": "a/b"}, {"name": "x" * 250}, {"name": ".."}])
    yield _metadata("none", [])
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    yield _metadata("operations", [{"name": DATA}, {"name": "d-missing"}], **operations)
    for name, topic_id in (("unknown id", UNKNOWN_ID),):
        values = {"topics": [{"name": None, "topic_id": topic_id}], "allow_auto_topic_creation": False}
        yield Case(name=f"metadata: {name}", key=3, values=values, versions=range(12, 100))

    def by_id(ids: Any, _version: int) -> Values:
        return {"topics": [{"name": None, "topic_id": ids[DATA]}], "allow_auto_topic_creation": False}

    yield Case(name="metadata: by id", key=3, values=by_id, versions=range(12, 100))
    for name, values in (
        ("some", {"topics": [{"name": DATA}, {"name": "d-missing"}, {"name": "a/b"}], "response_partition_limit": 99}),
        ("limited", {"topics": [{"name": DATA}, {"name": EMPTY}], "response_partition_limit": 1}),
        ("limit 0", {"topics": [{"name": DATA}], "response_partition_limit": 0}),
        (
            "cursor",
            {
                "topics": [{"name": DATA}, {"name": EMPTY}],
                "response_partition_limit": 9,
                "cursor": {"topic_name": DATA, "partition_index": 1},
            },
        ),
        (
            "cursor elsewhere",
            {
                "topics": [{"name": DATA}],
                "response_partition_limit": 9,
                "cursor": {"topic_name": "zz", "partition_index": 0},
            },
        ),
    ):
        yield Case(name=f"partitions: {name}", key=75, values=values)


def produce_and_fetch() -> Iterator[Case]:
    for name, topic, number, data, acks in (
        ("one", DATA, 1, records(T0), 1),
        ("all", DATA, 1, records(T0, T0 + 1), -1),
        ("acks 5", DATA, 1, records(T0), 5),
        ("unknown topic", "d-missing", 0, records(T0), 1),
        ("unknown partition", DATA, 7, records(T0), 1),
        ("bad checksum", DATA, 1, records(T0)[:-1] + b"x", 1),
        ("keyless on compacted", COMPACT, 0, records(T0), 1),
        ("keyed on compacted", COMPACT, 0, records(T0, key=b"k"), 1),
        ("two batches", DATA, 1, records(T0) + records(T0), 1),
    ):
        yield Case(name=f"produce: {name}", key=0, values=_produce(topic, number, data, acks), is_change=True)
    for name, topic, number, offset, epoch in (
        ("from 0", DATA, 0, 0, -1),
        ("from 3", DATA, 0, 3, 0),
        ("end", DATA, 0, 6, -1),
        ("beyond", DATA, 0, 99, -1),
        ("negative", DATA, 0, -5, -1),
        ("unknown topic", "d-missing", 0, 0, -1),
        ("unknown partition", DATA, 7, 0, -1),
        ("later epoch", DATA, 0, 0, 9),
    ):
        yield Case(name=f"fetch: {name}", key=1, values=_fetch(topic, number, offset, epoch))


def _fetch(topic: str, number: int, offset: int, epoch: int) -> Callable[[Any, int], Values]:
    def values(ids: Any, _version: int) -> Values:
        entry = {
            "partition": number,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        return {
            "replica_id": -1,
            "replica_state": {"replica_id": -1, "replica_epoch": -1},
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": topic, "topic_id": ids.get(topic, UNKNOWN_ID), "partitions": [entry]}],
        }

    return values


def offsets() -> Iterator[Case]:
    def ask(topic: str, entries: Iterable[tuple[int, int, int]], isolation: int = 0) -> Values:
        partitions = [
            {"partition_index": number, "timestamp": stamp, "current_leader_epoch": epoch, "max_num_offsets": 1}
            for number, stamp, epoch in entries
        ]
        return {
            "replica_id": -1,
            "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": partitions}],
            "timeout": 1000,
        }

    stamps = {
        "-1": -1,
        "-2": -2,
        "-3": -3,
        "-4": -4,
        "-5": -5,
        "-6": -6,
        "-7": -7,
        "0": 0,
        "first": T0,
        "last": T0 + 20,
    }
    stamps |= {"between": T0 + 6, "after": T0 + 21}
    for name, stamp in stamps.items():
        yield Case(name=f"offsets: {name}", key=2, values=ask(DATA, [(0, stamp, -1)]))
        yield Case(name=f"offsets: committed {name}", key=2, values=ask(DATA, [(0, stamp, -1)], 1))
    for name, stamp in (("-1", -1), ("-2", -2), ("-3", -3), ("0", 0)):
        yield Case(name=f"offsets: of nothing {name}", key=2, values=ask(EMPTY, [(0, stamp, -1)]))
    yield Case(name="offsets: epoch", key=2, values=ask(DATA, [(0, -1, 0), (1, -1, 9)]))
    yield Case(name="offsets: unknown", key=2, values=ask(DATA, [(9, -1, -1)]))
    yield Case(name="offsets: unknown topic", key=2, values=ask("d-missing", [(0, -1, -1)]))
    yield Case(name="offsets: twice", key=2, values=ask(DATA, [(0, -1, -1), (0, -2, -1)]))
    for epoch in (0, 5, -1):
        entry = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        values = {"replica_id": -1, "topics": [{"topic": DATA, "partitions": [entry]}]}
        yield Case(name=f"end of epoch {epoch}", key=23, values=values)


def grow() -> Iterator[Case]:
    def ask(topic: str, count: int, brokers: list[list[int]] | None = None, *, twice: bool = False) -> Values:
        assignments = None if brokers is None else [{"broker_ids": one} for one in brokers]
        entry = {"name": topic, "count": count, "assignments": assignments}
        return {"topics": [entry] * (2 if twice else 1), "timeout": 10_000, "validate_only": True}

    for name, values in (
        ("more", ask(DATA, 4)),
        ("same", ask(DATA, 2)),
        ("fewer", ask(DATA, 1)),
        ("negative", ask(DATA, -1)),
        ("unknown", ask("d-missing", 4)),
        ("by hand", ask(DATA, 3, [[1]])),
        ("too few by hand", ask(DATA, 4, [[1]])),
        ("unknown broker", ask(DATA, 3, [[9]])),
        ("broker twice", ask(DATA, 3, [[1, 1]])),
        ("none by hand", ask(DATA, 3, [])),
        ("twice", ask(DATA, 4, twice=True)),
    ):
        yield Case(name=f"grow: {name}", key=37, values=values, is_change=True)


def cluster() -> Iterator[Case]:
    yield Case(name="cluster", key=60, values={"endpoint_type": 1})
    yield Case(
        name="cluster: operations", key=60, values={"endpoint_type": 1, "include_cluster_authorized_operations": True}
    )
    yield Case(name="cluster: controllers", key=60, values={"endpoint_type": 2}, versions=range(1, 100))
    yield Case(name="sasl: handshake", key=17, values={"mechanism": "PLAIN"})
    yield Case(name="sasl: authenticate", key=36, values={"auth_bytes": b"\0u\0p"})
    for kind in (0, 1, 9):
        versions = range(1, 100) if kind else range(100)
        named = {"topic_partitions": [{"topic": DATA, "partitions": [0, 9]}, {"topic": "d-missing", "partitions": [0]}]}
        yield Case(
            name=f"elect {kind}",
            key=43,
            values={"election_type": kind, "timeout": 9000, **named},
            versions=versions,
            is_change=True,
        )
    yield Case(name="elect all", key=43, values={"topic_partitions": None, "timeout": 9000}, is_change=True)
    for name, number, replicas in (
        ("same", 0, [1]),
        ("unknown broker", 0, [9]),
        ("none", 0, []),
        ("twice", 0, [1, 1]),
        ("negative", 0, [-1]),
        ("cancel", 0, None),
        ("unknown partition", 9, [1]),
    ):
        entry = {"partition_index": number, "replicas": replicas}
        values = {
            "timeout": 9000,
            "allow_replication_factor_change": True,
            "topics": [{"name": DATA, "partitions": [entry]}],
        }
        yield Case(name=f"reassign: {name}", key=45, values=values, is_change=True)
    yield Case(name="reassignments", key=46, values={"timeout": 9000, "topics": None})
    listed = [{"name": DATA, "partition_indexes": [0]}, {"name": "d-missing", "partition_indexes": [0]}]
    yield Case(name="reassignments: named", key=46, values={"timeout": 9000, "topics": listed})
    for name, updates in (
        ("unknown", {"feature_updates": [{"feature": "nonsense", "max_version_level": 1, "upgrade_type": 1}]}),
        ("negative", {"feature_updates": [{"feature": "nonsense", "max_version_level": -1, "upgrade_type": 1}]}),
    ):
        yield Case(name=f"features: {name}", key=57, values={"timeout": 9000, **updates}, is_change=True)
    for kinds in ([2], [4], [16], [99], [32]):
        yield Case(name=f"resources {kinds}", key=74, values={"resource_types": kinds})
    yield Case(
        name="producer id",
        key=22,
        values={"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1},
    )


def delete_records() -> Iterator[Case]:
    def ask(topic: str, number: int, offset: int) -> Values:
        entry = {"partition_index": number, "offset": offset}
        return {"topics": [{"name": topic, "partitions": [entry]}], "timeout": 10_000}

    for name, values in (
        ("some", ask(DATA, 0, 2)),
        ("fewer", ask(DATA, 0, 1)),
        ("too many", ask(DATA, 0, 99)),
        ("negative", ask(DATA, 0, -2)),
        ("unknown", ask("d-missing", 0, 1)),
        ("compacted", ask(COMPACT, 0, 1)),
        ("internal", ask("__consumer_offsets", 0, 0)),
        ("all", ask(DATA, 0, -1)),
    ):
        yield Case(name=f"delete records: {name}", key=21, values=values, is_change=True)


def delete_topics() -> Iterator[Case]:
    def ask(*names: str) -> Values:
        topics = [{"name": name, "topic_id": NO_ID} for name in names]
        return {"topic_names": list(names), "topics": topics, "timeout": 10_000}

    yield Case(name="delete: unknown", key=20, values=ask("d-missing"), is_change=True)
    yield Case(name="delete: bad name", key=20, values=ask("a/b"), is_change=True)
    yield Case(name="delete: none", key=20, values=ask(), is_change=True)
    by_id = {"topics": [{"name": None, "topic_id": UNKNOWN_ID}], "timeout": 10_000}
    yield Case(name="delete: unknown id", key=20, values=by_id, versions=range(6, 7), is_change=True)
    both = {"topics": [{"name": DATA, "topic_id": UNKNOWN_ID}], "timeout": 10_000}
    yield Case(name="delete: name and id", key=20, values=both, versions=range(6, 7), is_change=True)
    neither = {"topics": [{"name": None, "topic_id": NO_ID}], "timeout": 10_000}
    yield Case(name="delete: neither", key=20, values=neither, versions=range(6, 7), is_change=True)
    yield Case(name="delete", key=20, values=ask(DATA, COMPACT, EMPTY), versions=range(5, 6), is_change=True)
