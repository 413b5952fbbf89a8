"""Metadata (key 3), versions 0-13, flexible from 9.

Behaviour: brokers, controller, and the topics asked for (all of them if none is named). A topic that is not there is
    created first where that is allowed; the answer waits for it, so that the first answer already names the leader.
Versions: 1 controller, racks, null for all topics; 2 cluster id; 4 auto-creation is the client's choice; 5 offline
    replicas; 7 leader epoch; 9 flexible; 10 topic ids; 12 topics by id; 13 error of the whole answer.
    Answers are bytes: each topic's part is kept until the topic changes, so that thousands of partitions cost no time.
Differs from Kafka: an auto-created topic is in the answer at once, instead of LEADER_NOT_AVAILABLE and a retry.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import InvalidTopicError, check_topic_name
from penstock.controller.errors import TopicExistsError
from penstock.controller.topics import NewTopic
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.operations import NOT_ASKED, allowed_operations
from penstock.handlers.partitions import partition_fields
from penstock.metadata.image import INTERNAL_TOPICS, TopicImage
from penstock.metadata.store import NodeExistsError
from penstock.protocol.primitives import INT32, unsigned_varint
from penstock.protocol.schemas import Shape, codec

_FLEXIBLE_FROM = 9
_CLUSTER_OPERATIONS = range(8, 11)
_ERROR_FROM = 13
_IDS_UNUSED = range(10, 12)


class _Asked(NamedTuple):
    name: str | None
    topic_id: bytes | None


class KeptTopic(NamedTuple):
    """One topic's part of an answer, and what it was made from."""

    topic: TopicImage
    brokers_version: int
    operations: int
    encoded: bytes


def handle_metadata(request: Any, context: Context) -> Any:
    cluster = context.services.cluster
    if cluster is None or cluster.replicas.is_told:
        return _handle(request, context)
    # A broker that has just started does not know of anybody yet: nobody's answer is better than an empty one.
    held: Pending[Any] = Pending()

    def told() -> None:
        answer = _handle(request, context)
        if isinstance(answer, Pending):
            held.follow(answer)
        else:
            held.resolve(answer)

    cluster.replicas.when_told(told)
    return held


def _handle(request: Any, context: Context) -> Any:
    if _asks_by_id_too_early(request, context):
        return _refused(request, context)
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
        return _answer(request, asked, errors, context)
    pending: Pending[Any] = Pending()
    left = set(missing)

    def created(name: str, error: PenstockError | None) -> None:
        if error is not None and not isinstance(error, TopicExistsError | NodeExistsError):
            errors[name] = code_of(error)
        left.discard(name)
        if not left:
            pending.resolve(_answer(request, asked, errors, context))

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

    def confirmed(error: PenstockError | None) -> None:
        created(name, error)

    topics.create(decision, confirmed)


def _asks_by_id_too_early(request: Any, context: Context) -> bool:
    """Versions 10 and 11 have the field for ids, and may not use it yet."""
    if context.version not in _IDS_UNUSED:
        return False
    return any(topic.name is None or topic.topic_id is not None for topic in request.topics or ())


def _refused(request: Any, context: Context) -> bytes:
    parts = [_missing(topic.name or "", None, ErrorCode.invalid_request, context) for topic in request.topics]
    return _spliced(_frame(context, NOT_ASKED), parts, context.version)


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


def _answer(request: Any, asked: list[_Asked] | None, errors: dict[str, ErrorCode], context: Context) -> bytes:
    image = context.services.image
    wants_operations = getattr(request, "include_topic_authorized_operations", False)
    if asked is None:
        visible = [topic for name, topic in sorted(image.topics.items()) if _may_describe(name, context)]
        parts = [_topic(topic, context, wants_operations) for topic in visible]
    else:
        parts = [_asked_topic(one, errors, context, wants_operations) for one in asked]
    operations = NOT_ASKED
    if getattr(request, "include_cluster_authorized_operations", False):
        operations = allowed_operations(context, Resource.CLUSTER, CLUSTER_NAME)
    return _spliced(_frame(context, operations), parts, context.version)


def _frame(context: Context, operations: int) -> bytes:
    """The answer without topics."""
    response, image = context.response, context.services.image
    frame = response.make(
        throttle_time=timedelta(),
        brokers=_brokers(response, context),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=(),
        cluster_authorized_operations=operations,
        error_code=ErrorCode.none,
    )
    return codec(context.api_key, context.version).encode(frame)


def _spliced(frame: bytes, parts: list[bytes], version: int) -> bytes:
    """Puts topics where the frame has an empty array of them; what follows that array has the same size in every answer."""
    flexible = version >= _FLEXIBLE_FROM
    tail = (4 if version in _CLUSTER_OPERATIONS else 0) + (2 if version >= _ERROR_FROM else 0) + (1 if flexible else 0)
    end = len(frame) - tail
    start = end - (1 if flexible else 4)
    count = unsigned_varint(len(parts) + 1) if flexible else INT32.pack(len(parts))
    return b"".join((frame[:start], count, *parts, frame[end:]))


_writers: dict[type, Callable[[io.BytesIO, Any], None]] = {}


def _encoded(entity: Any) -> bytes:
    from kio.serial import entity_writer

    schema = type(entity)
    if schema not in _writers:
        _writers[schema] = entity_writer(schema)
    buffer = io.BytesIO()
    _writers[schema](buffer, entity)
    return buffer.getvalue()


def _may_describe(name: str, context: Context) -> bool:
    return context.services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.TOPIC, name)


def _brokers(response: Shape, context: Context) -> tuple[Any, ...]:
    return tuple(
        response.brokers.make(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker_id, broker in sorted(context.services.image.brokers.items())
        for endpoint in broker.endpoints
        if endpoint.listener == context.peer.listener
    )


def _asked_topic(asked: _Asked, errors: dict[str, ErrorCode], context: Context, wants_operations: bool) -> bytes:
    image = context.services.image
    if asked.topic_id is not None or asked.name is None:
        found = None if asked.topic_id is None else image.topic_by_id(asked.topic_id)
        if found is None or not _may_describe(found.name, context):
            return _missing(None, asked.topic_id, ErrorCode.unknown_topic_id, context)
        return _topic(found, context, wants_operations)
    if not _may_describe(asked.name, context):
        return _missing(asked.name, None, ErrorCode.topic_authorization_failed, context)
    operations = allowed_operations(context, Resource.TOPIC, asked.name) if wants_operations else NOT_ASKED
    found = image.topics.get(asked.name)
    if found is not None:
        return _topic(found, context, wants_operations)
    return _missing(asked.name, None, errors.get(asked.name, why_no_topic(asked.name)), context, operations)


def why_no_topic(name: str) -> ErrorCode:
    """The error for a name of no topic: could there be one?"""
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _missing(
    name: str | None, topic_id: bytes | None, error: ErrorCode, context: Context, operations: int = NOT_ASKED
) -> bytes:
    shape = context.response.topics
    return _encoded(
        shape.make(
            error_code=error,
            name=name,
            topic_id=None if topic_id is None else uuid.UUID(bytes=topic_id),
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
            topic_authorized_operations=operations,
        )
    )


def _topic(topic: TopicImage, context: Context, wants_operations: bool) -> bytes:
    services = context.services
    operations = allowed_operations(context, Resource.TOPIC, topic.name) if wants_operations else NOT_ASKED
    key = (context.version, topic.name)
    kept: KeptTopic | None = services.kept_topics.get(key)
    brokers_version = services.image.brokers_version
    if kept is not None and kept.topic is topic and kept[1:3] == (brokers_version, operations):
        return kept.encoded
    shape = context.response.topics
    encoded = _encoded(
        shape.make(
            error_code=ErrorCode.none,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=tuple(
                shape.partitions.make(**partition_fields(services.image, topic, number)) for number in topic.partitions
            ),
            topic_authorized_operations=operations,
        )
    )
    if kept is None and len(services.kept_topics) > 2 * len(services.image.topics):
        _forget_deleted(context)
    services.kept_topics[key] = KeptTopic(topic, brokers_version, operations, encoded)
    return encoded


def _forget_deleted(context: Context) -> None:
    kept, topics = context.services.kept_topics, context.services.image.topics
    for key in [key for key, one in kept.items() if topics.get(key[1]) is not one.topic]:
        del kept[key]
