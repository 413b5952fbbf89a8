"""What the handlers of the group APIs share."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import MessageTooLargeError, PenstockError, RecordListTooLargeError
from penstock.controller.errors import UnknownTopicIdError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import GroupAuthorisationError, TopicAuthorisationError
from penstock.replication.errors import UnknownTopicOrPartitionError


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def code(error: PenstockError | None) -> ErrorCode:
    return ErrorCode.none if error is None else code_of(error)


def code_of_write(error: PenstockError | None) -> ErrorCode:
    """The same for a group's own record: of one that is too large a member is told, as in Kafka, that something went wrong."""
    if isinstance(error, MessageTooLargeError | RecordListTooLargeError):
        return ErrorCode.unknown_server_error
    return code(error)


def check_group(context: Context, action: Action, group_id: str) -> None:
    if not context.services.authoriser.allows(context.peer.principal, action, Resource.GROUP, group_id):
        raise GroupAuthorisationError(f"{context.peer.principal} may not {action.value} group {group_id}")


def may_topic(context: Context, action: Action, topic: str) -> bool:
    return context.services.authoriser.allows(context.peer.principal, action, Resource.TOPIC, topic)


def check_topic(context: Context, action: Action, topic: str) -> None:
    if not may_topic(context, action, topic):
        raise TopicAuthorisationError(f"{context.peer.principal} may not {action.value} topic {topic}")
    if topic not in context.services.image.topics:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")


def topic_name(entry: Any, context: Context) -> str:
    """The name of a topic that a request gives by name, or by id in its newer versions."""
    if hasattr(entry, "name"):
        return str(entry.name)
    topic_id = entry.topic_id
    name = None if topic_id is None else context.services.image.names_by_id.get(topic_id.bytes)
    if name is None:
        raise UnknownTopicIdError("no topic has this id")
    return name


def topic_id(name: str, context: Context) -> uuid.UUID | None:
    topic = context.services.image.topics.get(name)
    return None if topic is None else topic.topic_id
