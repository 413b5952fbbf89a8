"""Identifiers that more than one room speaks."""

from __future__ import annotations

import base64
import re
import uuid
from typing import NamedTuple

from penstock.base.errors import PenstockError

TOPIC_NAME_MAX_LENGTH = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


class InvalidTopicError(PenstockError):
    """A topic name that Kafka refuses (INVALID_TOPIC_EXCEPTION)."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(name: str) -> None:
    """Raises `InvalidTopicError` unless the name is one that may become part of a path."""
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic may not be called {name!r}")
    if not _TOPIC_NAME.match(name):
        raise InvalidTopicError(
            f"topic name {name[:300]!r} is not valid: 1 to {TOPIC_NAME_MAX_LENGTH} characters of a-z, A-Z, 0-9, "
            "'.', '_' and '-'"
        )


def topic_id_text(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> uuid.UUID:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return uuid.UUID(bytes=raw)
    except ValueError as error:
        raise PenstockError(f"{text!r} is not a topic id") from error
