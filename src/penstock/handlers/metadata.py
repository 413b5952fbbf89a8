"""Metadata (key 3), versions 0-13, flexible from 9.

Behaviour: brokers, controller, and the topics asked for (all of them if none is named). A topic that is not there is
    created first where that is allowed; the answer waits for it, so that the first answer already names the leader.
Versions: 1 controller, racks, null for all topics; 2 cluster id; 4 auto-creation is the client's choice; 5 offline
    replicas; 7 leader epoch; 9 flexible; 10 topic ids; 12 topics by id; 13 error of the whole answer.
Differs from Kafka: an auto-created topic is in the answer at once, instead of LEADER_NOT_AVAILABLE and a retry.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import TopicExistsError
from penstock.controller.topics import NewTopic
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.error_map import code_of
from penstock.metadata.image import INTERNAL_TOPICS, Image, TopicImage
from penstock.metadata.store import NodeExistsError, StoreError
from penstock.protocol.schemas import Shape


class _Asked(NamedTuple):
    name: str | None
    topic_id: bytes | None


def handle_metadata(request: Any, context: Context) -> Any:
    asked = _asked(request, context)
    may_create = getattr(request, "allow_auto_topic_creation", True) and context.services.settings.auto_create_topics
    errors: dict[str, ErrorCode] = {}
    missing = []
    if asked is not None and may_create:
        image = context.services.image
        names = dict.fromkeys(one.name for one in asked if one.name is not None)
        missing = [name for name in names if name not in image.topics and name not in INTERNAL_TOPICS]
        missing = [name for name in missing if _may_create(name, context)]
    if not missing:
        return _answer(asked, errors, context)
    pending: Pending[Any] = Pending()
    left = set(missing)

    def created(name: str, error: PenstockError | None) -> None:
        if error is not None and not isinstance(error, TopicExistsError | NodeExistsError):
            errors[name] = code_of(error)
        left.discard(name)
        if not left:
            pending.resolve(_answer(asked, errors, context))

    for name in missing:
        _create(name, context, created)
    return pending


def _create(name: str, context: Context, created: Any) -> None:
    topics = context.services.topics
    try:
        decision = topics.decide(NewTopic(name=name))
    except PenstockError as error:
        created(name, error)
        return

    def confirmed(error: StoreError | None) -> None:
        created(name, error)

    topics.create(decision, confirmed)


def _asked(request: Any, context: Context) -> list[_Asked] | None:
    """The topics a request names; None means all."""
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        return None
    return [
        _Asked(topic.name, None if topic.name is not None or topic.topic_id is None else topic.topic_id.bytes)
        if context.version >= 10
        else _Asked(topic.name, None)
        for topic in topics
    ]


def _may_create(name: str, context: Context) -> bool:
    allows, principal = context.services.authoriser.allows, context.peer.principal
    return allows(principal, Action.CREATE, Resource.CLUSTER, CLUSTER_NAME) or allows(
        principal, Action.CREATE, Resource.TOPIC, name
    )


def _answer(asked: list[_Asked] | None, errors: dict[str, ErrorCode], context: Context) -> Any:
    response = context.response
    image = context.services.image
    if asked is None:
        visible = [topic for name, topic in sorted(image.topics.items()) if _may_describe(name, context)]
        topics = [_topic(response, topic, image) for topic in visible]
    else:
        topics = [_asked_topic(response, one, errors, context) for one in asked]
    return response.make(
        throttle_time=timedelta(),
        brokers=_brokers(response, context),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=-(2**31),
        error_code=ErrorCode.none,
    )


def _may_describe(name: str, context: Context) -> bool:
    return context.services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.TOPIC, name)


def _brokers(response: Shape, context: Context) -> tuple[Any, ...]:
    return tuple(
        response.brokers.make(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker_id, broker in sorted(context.services.image.brokers.items())
        for endpoint in broker.endpoints
        if endpoint.listener == context.peer.listener
    )


def _asked_topic(response: Shape, asked: _Asked, errors: dict[str, ErrorCode], context: Context) -> Any:
    image = context.services.image
    if asked.topic_id is not None:
        found = image.topic_by_id(asked.topic_id)
        if found is None or not _may_describe(found.name, context):
            return _missing(response, None, asked.topic_id, ErrorCode.unknown_topic_id)
        return _topic(response, found, image)
    assert asked.name is not None
    if not _may_describe(asked.name, context):
        return _missing(response, asked.name, None, ErrorCode.topic_authorization_failed)
    found = image.topics.get(asked.name)
    if found is not None:
        return _topic(response, found, image)
    return _missing(response, asked.name, None, errors.get(asked.name, _why_missing(asked.name)))


def _why_missing(name: str) -> ErrorCode:
    from penstock.base.ids import InvalidTopicError, check_topic_name

    try:
        check_topic_name(name)
    except InvalidTopicError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _missing(response: Shape, name: str | None, topic_id: bytes | None, error: ErrorCode) -> Any:
    import uuid

    return response.topics.make(
        error_code=error,
        name=name,
        topic_id=None if topic_id is None else uuid.UUID(bytes=topic_id),
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=-(2**31),
    )


def _topic(response: Shape, topic: TopicImage, image: Image) -> Any:
    make = response.topics.partitions.make
    partitions = []
    for number, state in topic.partitions.items():
        failed = image.offline_replicas.get((topic.name, number), ()) if image.offline_replicas else ()
        offline = tuple(broker for broker in state.replicas if broker not in image.brokers or broker in failed)
        partitions.append(
            make(
                error_code=ErrorCode.none if state.leader in image.brokers else ErrorCode.leader_not_available,
                partition_index=number,
                leader_id=state.leader if state.leader in image.brokers else -1,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=offline,
            )
        )
    return response.topics.make(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=-(2**31),
    )
