"""Topics and configurations as an operator sees and changes them.

CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DescribeConfigs (32), IncrementalAlterConfigs (44), and Metadata (3)
in full. Changes go to the controller; each function is for one thing, or for many that are answered one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.client.cluster import METADATA_HIGHEST, METADATA_KEY, METADATA_LOWEST, Cluster
from penstock.client.coordinators import again
from penstock.client.errors import AnswerError, UnfinishedError, UnknownTopicError, UnreachableError
from penstock.client.messages import CallCodec, call_codec

DEFAULT = -1
"""As many partitions or replicas as the broker is configured to make."""

CHANGE_MS = 60_000
"""How long a broker may take to make, grow or delete a topic: thousands of partitions take a while on a busy machine."""

_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS = 19, 20, 37
_DONE_ONCE = frozenset({_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS})
"""What is done already cannot be done again: a second try is refused where the first was carried out."""


class ResourceKind(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a value comes from, the nearest first."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class DescribedPartition(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class DescribedTopic(NamedTuple):
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[DescribedPartition, ...]


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    """None where it is a secret."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


def describe_topics(cluster: Cluster, names: Iterable[str] | None = None) -> list[DescribedTopic]:
    """All topics, or these; one that is not there is an error."""
    wanted = None if names is None else tuple(cluster.topics(tuple(names)))

    def make(codec: CallCodec) -> Any:
        asked = None
        if wanted is not None:
            asked = tuple(codec.request.topics.make(name=name, topic_id=None) for name in wanted)
        return codec.request.make(
            topics=asked,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    answer = _ask(cluster, METADATA_KEY, "Metadata", METADATA_LOWEST, METADATA_HIGHEST, make)
    return sorted(_described(entry) for entry in answer.topics if entry.name is not None)


def _described(entry: Any) -> DescribedTopic:
    partitions = sorted(
        DescribedPartition(
            one.partition_index,
            one.leader_id,
            getattr(one, "leader_epoch", -1),
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(getattr(one, "offline_replicas", ())),
        )
        for one in entry.partitions
    )
    topic_id = getattr(entry, "topic_id", None)
    return DescribedTopic(entry.name, "" if topic_id is None else str(topic_id), entry.is_internal, tuple(partitions))


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> None:
    def make(codec: CallCodec) -> Any:
        topics = codec.request.topics
        topic = topics.make(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(topics.configs.make(name=key, value=value) for key, value in (configs or {}).items()),
        )
        return codec.request.make(topics=(topic,), timeout=timedelta(milliseconds=CHANGE_MS), validate_only=False)

    _change(cluster, _CREATE_TOPICS, "CreateTopics", 4, 7, make, lambda answer: answer.topics[0], name)


def delete_topic(cluster: Cluster, name: str) -> None:
    def make(codec: CallCodec) -> Any:
        request = codec.request
        topic = request.topics.make(name=name, topic_id=None) if request.has("topics") else None
        return request.make(topics=(topic,), topic_names=(name,), timeout=timedelta(milliseconds=CHANGE_MS))

    _change(cluster, _DELETE_TOPICS, "DeleteTopics", 1, 6, make, lambda answer: answer.responses[0], name)


def grow_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """To so many partitions in all."""

    def make(codec: CallCodec) -> Any:
        topic = codec.request.topics.make(name=name, count=partitions, assignments=None)
        return codec.request.make(topics=(topic,), timeout=timedelta(milliseconds=CHANGE_MS), validate_only=False)

    _change(cluster, _CREATE_PARTITIONS, "CreatePartitions", 0, 3, make, lambda answer: answer.results[0], name)


def describe_configs(cluster: Cluster, kind: ResourceKind, name: str) -> list[ConfigEntry]:
    """Every key of a topic, or of a broker ("" for what holds for all brokers)."""

    def make(codec: CallCodec) -> Any:
        resource = codec.request.resources.make(resource_type=int(kind), resource_name=name, configuration_keys=None)
        return codec.request.make(resources=(resource,), include_synonyms=False, include_documentation=True)

    answer = _ask(cluster, 32, "DescribeConfigs", 1, 4, make, _broker(kind, name))
    (result,) = answer.results
    _check(result, f"configuration of {_resource(kind, name)}")
    return sorted(
        ConfigEntry(
            one.name,
            one.value,
            ConfigSource(max(one.config_source, 0)),
            one.read_only,
            one.is_sensitive,
            getattr(one, "documentation", None),
        )
        for one in result.configs
    )


def alter_configs(
    cluster: Cluster, kind: ResourceKind, name: str, values: Mapping[str, str], deleted: Iterable[str] = ()
) -> None:
    """Sets some keys and takes others back to where they come from without; the rest stays."""

    def make(codec: CallCodec) -> Any:
        resources = codec.request.resources
        changes = [resources.configs.make(name=key, config_operation=0, value=value) for key, value in values.items()]
        changes += [resources.configs.make(name=key, config_operation=1, value=None) for key in deleted]
        resource = resources.make(resource_type=int(kind), resource_name=name, configs=tuple(changes))
        return codec.request.make(resources=(resource,), validate_only=False)

    what = f"configuration of {_resource(kind, name)}"
    node = _broker(kind, name)
    _change(cluster, 44, "IncrementalAlterConfigs", 0, 1, make, lambda answer: answer.responses[0], what, node)


class Elected(NamedTuple):
    partition: TopicPartition
    error: str
    """Why it has no other leader; empty where it has."""


PREFERRED, UNCLEAN = 0, 1


def elect_leaders(cluster: Cluster, kind: int, partitions: Iterable[TopicPartition] | None) -> list[Elected]:
    """Asks the controller for other leaders, of all partitions where none are named; those that need none are left out."""
    named = None if partitions is None else list(partitions)
    found: list[Elected] = []

    def make(codec: CallCodec) -> Any:
        shape = codec.request.topic_partitions
        by_topic: dict[str, list[int]] = {}
        for one in named or ():
            by_topic.setdefault(one.topic, []).append(one.partition)
        topics = tuple(shape.make(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items())
        return codec.request.make(
            election_type=kind,
            topic_partitions=None if named is None else topics,
            timeout=timedelta(milliseconds=cluster.config.request_timeout_ms),
        )

    def result(answer: Any) -> Any:
        found.clear()
        for topic in answer.replica_election_results:
            for one in topic.partition_result:
                if one.error_code == ErrorCode.election_not_needed:
                    continue
                error = "" if one.error_code == 0 else one.error_message or ErrorCode(one.error_code).name
                found.append(Elected(TopicPartition(topic.topic, one.partition_id), error))
        return answer

    _change(cluster, 43, "ElectLeaders", 1, 2, make, result, "leaders")
    return found


def _broker(kind: ResourceKind, name: str) -> int | None:
    """The broker that knows of this configuration and nobody else does; None where any does."""
    return int(name) if kind is ResourceKind.BROKER and name.isdecimal() else None


def _resource(kind: ResourceKind, name: str) -> str:
    return f"{kind.name.lower()} {name}" if name else f"all {kind.name.lower()}s"


def _ask(
    cluster: Cluster,
    key: int,
    api: str,
    lowest: int,
    highest: int,
    make: Callable[[CallCodec], Any],
    node: int | None = None,
) -> Any:
    """One request to a broker; to any, where none is named."""

    def ask() -> Any:
        brokers = cluster.metadata(()).brokers
        with cluster.connection(next(iter(brokers)) if node is None or node not in brokers else node) as connection:
            version = connection.version(key, api, lowest, highest)
            return connection.call(key, version, make(call_codec(key, version)))

    return again(cluster, ask)


def _change(
    cluster: Cluster,
    key: int,
    api: str,
    lowest: int,
    highest: int,
    make: Callable[[CallCodec], Any],
    result: Callable[[Any], Any],
    what: str,
    broker: int | None = None,
) -> None:
    """One request to the controller, or to this broker; again while there is none or it moves."""
    is_done_once = key in _DONE_ONCE
    doubt = ""

    def ask() -> None:
        nonlocal doubt
        found = cluster.metadata(())
        node = found.controller if broker is None or broker not in found.brokers else broker
        with cluster.connection(node if node in found.brokers else next(iter(found.brokers))) as connection:
            version = connection.version(key, api, lowest, highest)
            request = make(call_codec(key, version))
            try:
                answer = connection.call(key, version, request, wait_ms=CHANGE_MS if is_done_once else 0)
            except UnreachableError as error:
                doubt = f"an earlier try may have done it, its answer got lost: {error}" if is_done_once else ""
                raise
        checked = result(answer)
        if is_done_once and checked.error_code == ErrorCode.request_timed_out:
            said = getattr(checked, "error_message", None)
            raise UnfinishedError(f"{what}: {said or 'the broker has not finished it in time; it may yet'}")
        _check(checked, what, doubt)

    again(cluster, ask)


def _check(result: Any, what: str, doubt: str = "") -> None:
    if result.error_code == 0:
        return
    said = getattr(result, "error_message", None)
    is_unknown = result.error_code == ErrorCode.unknown_topic_or_partition
    detail = "; ".join(filter(None, (said or ("there is no such topic" if is_unknown else ""), doubt)))
    if is_unknown:
        # The controller knows every topic: asking it again would not help.
        raise UnknownTopicError(f"{what}: {detail}")
    raise AnswerError(what, result.error_code, detail=detail)
