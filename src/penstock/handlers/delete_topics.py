"""DeleteTopics (key 20), versions 1-6, flexible from 4.

Behaviour: each topic on its own; answers when the store confirmed them all. Their files are gone from the directory's
    names by then, and from the disk a little later.
Versions: 3 tells that deletion is disabled; 4 flexible; 5 error messages; 6 topics by id.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError, TopicDeletionDisabledError, UnknownTopicIdError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.metadata.image import TopicImage
from penstock.metadata.store import StoreError
from penstock.replication.errors import UnknownTopicOrPartitionError

_DISABLED_FROM = 3


class _Asked(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None


def handle_delete_topics(request: Any, context: Context) -> Any:
    outcomes: list[tuple[_Asked, TopicImage | PenstockError]] = []
    if not context.services.settings.delete_topics:
        refusal = TopicDeletionDisabledError if context.version >= _DISABLED_FROM else InvalidRequestError
        disabled = refusal("topics are not deleted here: delete.topic.enable is false")
        return _answer([(asked, disabled) for asked in _asked(request)], context)
    seen: set[str] = set()
    for asked in _asked(request):
        outcome: TopicImage | PenstockError
        try:
            outcome = _find(asked, context)
            if outcome.name in seen:
                raise InvalidRequestError(f"topic {outcome.name} stands twice in the request")
            seen.add(outcome.name)
        except PenstockError as error:
            outcome = error
        outcomes.append((asked, outcome))
    left = {number for number, (_, outcome) in enumerate(outcomes) if isinstance(outcome, TopicImage)}
    if not left:
        return _answer(outcomes, context)
    pending: Pending[Any] = Pending()

    def confirmed(number: int, error: StoreError | None) -> None:
        if error is not None:
            outcomes[number] = (outcomes[number][0], error)
        left.discard(number)
        if not left:
            pending.resolve(_answer(outcomes, context))

    for number in sorted(left):
        topic = outcomes[number][1]
        assert isinstance(topic, TopicImage)
        context.services.topics.delete(topic, lambda error, number=number: confirmed(number, error))  # type: ignore[misc]
    return pending


def _asked(request: Any) -> list[_Asked]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [_Asked(name, None) for name in names]
    return [_Asked(topic.name, topic.topic_id) for topic in request.topics]


def _find(asked: _Asked, context: Context) -> TopicImage:
    image = context.services.image
    if asked.name is None:
        if asked.topic_id is None:
            raise InvalidRequestError("a topic to delete has neither name nor id")
        topic = image.topic_by_id(asked.topic_id.bytes)
        if topic is None or not _allows(Action.DESCRIBE, topic.name, context):
            raise UnknownTopicIdError("no topic has this id")
    else:
        if asked.topic_id is not None and asked.topic_id.int != 0:
            raise InvalidRequestError(f"topic {asked.name} is named and has an id: one of them is enough")
        if not _allows(Action.DESCRIBE, asked.name, context):
            raise TopicAuthorisationError(f"{context.peer.principal} may not see topic {asked.name}")
        topic = image.topics.get(asked.name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {asked.name}")
    if not _allows(Action.DELETE, topic.name, context):
        raise TopicAuthorisationError(f"{context.peer.principal} may not delete topic {topic.name}")
    return topic


def _allows(action: Action, name: str, context: Context) -> bool:
    return context.services.authoriser.allows(context.peer.principal, action, Resource.TOPIC, name)


def _answer(outcomes: list[tuple[_Asked, TopicImage | PenstockError]], context: Context) -> Any:
    response = context.response
    topics = []
    for asked, outcome in outcomes:
        failed = isinstance(outcome, PenstockError)
        topics.append(
            response.responses.make(
                name=asked.name if isinstance(outcome, PenstockError) else outcome.name,
                topic_id=asked.topic_id if isinstance(outcome, PenstockError) else outcome.topic_id,
                error_code=code_of(outcome) if isinstance(outcome, PenstockError) else ErrorCode.none,
                error_message=str(outcome) if failed else None,
            )
        )
    return response.make(throttle_time=timedelta(), responses=tuple(topics))
