"""Topic configurations as clients see them: value, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from penstock.protocol.schemas import Shape
from penstock.storage.config import TOPIC_KEYS


class Source(IntEnum):
    """Kafka's numbers for where a value came from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


TOPIC, BROKER = 2, 4
"""Kafka's numbers for kinds of resources."""

TYPES = {"boolean": 1, "string": 2, "integer": 3, "long": 5, "double": 6, "list": 7}
"""Kafka's numbers for types of values."""


def text_of(value: object) -> str:
    """A value in the text that would be read back as it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def topic_config_entries(
    shape: Shape, overrides: Mapping[str, str], broker_values: Mapping[str, object]
) -> tuple[Any, ...]:
    entries = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if name in overrides:
            value, source = overrides[name], Source.TOPIC
        elif name in broker_values:
            value, source = text_of(broker_values[name]), Source.STATIC_BROKER
        else:
            value, source = text_of(key.default), Source.DEFAULT
        entries.append(
            shape.make(name=name, value=value, read_only=False, config_source=int(source), is_sensitive=key.sensitive)
        )
    return tuple(entries)
