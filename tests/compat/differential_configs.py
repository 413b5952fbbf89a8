"""What Apache Kafka and Penstock are both asked about configurations."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.differential_names import EMPTY
from tests.support.differential import Case, Values


def configs() -> Iterator[Case]:
    def describe(kind: int, name: str, keys: list[str] | None, *, synonyms: bool = True) -> Values:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return {"resources": [resource], "include_synonyms": synonyms, "include_documentation": False}

    yield Case(name="configs: topic", key=32, values=describe(2, EMPTY, None))
    yield Case(name="configs: topic without synonyms", key=32, values=describe(2, EMPTY, None, synonyms=False))
    yield Case(name="configs: one key", key=32, values=describe(2, EMPTY, ["segment.ms", "nonsense"]))
    yield Case(name="configs: no key", key=32, values=describe(2, EMPTY, []))
    yield Case(name="configs: unknown topic", key=32, values=describe(2, "d-missing", None))
    yield Case(name="configs: bad topic", key=32, values=describe(2, "a/b", None))
    yield Case(name="configs: broker", key=32, values=describe(4, "1", BROKER_KEYS))
    yield Case(name="configs: cluster", key=32, values=describe(4, "", None))
    yield Case(name="configs: other broker", key=32, values=describe(4, "9", None))
    yield Case(name="configs: broker x", key=32, values=describe(4, "x", None))

    def change(kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False) -> Values:
        entries = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": entries}
        return {"resources": [resource], "validate_only": validate}

    topic = describe(2, EMPTY, ["retention.ms", "segment.ms", "cleanup.policy", "segment.bytes"])
    for number, (name, values) in enumerate(
        (
            ("set", change(2, EMPTY, ("retention.ms", 0, "5000"))),
            ("delete", change(2, EMPTY, ("segment.ms", 1, None))),
            ("delete what is not there", change(2, EMPTY, ("segment.jitter.ms", 1, None))),
            ("append", change(2, EMPTY, ("cleanup.policy", 2, "compact"))),
            ("append again", change(2, EMPTY, ("cleanup.policy", 2, "compact"))),
            ("subtract", change(2, EMPTY, ("cleanup.policy", 3, "delete"))),
            ("append to a number", change(2, EMPTY, ("retention.ms", 2, "1"))),
            ("bad value", change(2, EMPTY, ("retention.ms", 0, "x"))),
            ("unknown key", change(2, EMPTY, ("nonsense", 0, "1"))),
            ("null", change(2, EMPTY, ("retention.ms", 0, None))),
            ("twice", change(2, EMPTY, ("retention.ms", 0, "1"), ("retention.ms", 1, None))),
            ("operation 9", change(2, EMPTY, ("retention.ms", 9, "1"))),
            ("unknown topic", change(2, "d-missing", ("retention.ms", 0, "1"))),
            ("validated", change(2, EMPTY, ("retention.ms", 0, "77"), validate=True)),
            ("kind 99", change(99, "x", ("a", 0, "1"))),
            ("cluster", change(4, "", ("log.retention.ms", 0, "7000"))),
            ("broker", change(4, "1", ("log.cleaner.threads", 0, "2"))),
            ("broker, bad value", change(4, "1", ("log.cleaner.threads", 0, "x"))),
            ("broker, read only", change(4, "1", ("num.partitions", 0, "2"))),
            ("other broker", change(4, "9", ("log.cleaner.threads", 0, "2"))),
            ("broker x", change(4, "x", ("log.cleaner.threads", 0, "2"))),
        )
    ):
        yield Case(
            name=f"change: {name}", key=44, values=values, versions=range(number % 2, number % 2 + 1), is_change=True
        )
    yield Case(name="configs: changed topic", key=32, values=topic)
    yield Case(name="configs: changed cluster", key=32, values=describe(4, "", None))
    yield Case(
        name="configs: changed broker", key=32, values=describe(4, "1", ["log.retention.ms", "log.cleaner.threads"])
    )
    for number, (name, values) in enumerate(
        (
            ("whole", change(2, EMPTY, ("segment.ms", 0, "9000"))),
            ("whole, bad", change(2, EMPTY, ("segment.ms", 0, "x"))),
            ("whole, null", change(2, EMPTY, ("segment.ms", 0, None))),
            ("whole, cluster", change(4, "", ("min.insync.replicas", 0, "1"))),
            ("whole, broker", change(4, "1")),
            ("whole, unknown topic", change(2, "d-missing")),
        )
    ):
        yield Case(
            name=f"change: {name}", key=33, values=values, versions=range(number % 3, number % 3 + 1), is_change=True
        )
    yield Case(name="configs: replaced topic", key=32, values=topic)
    yield Case(name="configs: replaced cluster", key=32, values=describe(4, "", None))


BROKER_KEYS = [
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.roll.ms",
    "log.roll.hours",
    "log.flush.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.segment.bytes",
    "log.cleanup.policy",
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.backoff.ms",
    "log.cleaner.min.cleanable.ratio",
    "message.max.bytes",
    "num.partitions",
    "default.replication.factor",
    "auto.create.topics.enable",
    "delete.topic.enable",
    "compression.type",
    "min.insync.replicas",
    "fetch.max.bytes",
    "socket.request.max.bytes",
    "max.connections",
    "connections.max.idle.ms",
    "group.max.session.timeout.ms",
    "offsets.topic.num.partitions",
    "offsets.retention.minutes",
    "unclean.leader.election.enable",
    "producer.id.expiration.ms",
    "num.recovery.threads.per.data.dir",
    "log.preallocate",
    "broker.rack",
]
