"""Configurations as clients see them: the value in force, where it came from, and what it would be otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import Any, NamedTuple

from penstock.base.config import ConfigKey, value_text
from penstock.handlers.services import Services
from penstock.metadata.layout import CLUSTER_DEFAULT
from penstock.storage.config import TOPIC_KEYS, stored_log_config


class Source(IntEnum):
    """Kafka's numbers for where a value came from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's numbers for kinds of resources."""

TYPES = {"boolean": 1, "string": 2, "integer": 3, "long": 5, "double": 6, "list": 7}
"""Kafka's numbers for types of values."""


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    key: ConfigKey[Any]
    value: str | None
    synonyms: tuple[Synonym, ...]
    """Strongest first."""

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


_Layers = tuple[tuple[Source, Mapping[str, str]], ...]


def _layers(services: Services) -> _Layers:
    """What was set for brokers, strongest first; each by the name it was set by."""
    configs, settings = services.image.broker_configs, services.settings
    return (
        (Source.DYNAMIC_BROKER, configs.get(str(services.node_id), {})),
        (Source.DYNAMIC_DEFAULT_BROKER, configs.get(CLUSTER_DEFAULT, {})),
        (Source.STATIC_BROKER, settings.given),
        (Source.DEFAULT, settings.defaults),
    )


def _synonyms(name: str, names: tuple[str, ...], layers: _Layers) -> Iterator[Synonym]:
    """Kafka's list: sources in their order, names in theirs, from the first that has the asked name on."""
    found = (Synonym(one, layer[one], source) for source, layer in layers for one in names if one in layer)
    return dropwhile(lambda synonym: synonym.name != name, found)


def topic_entries(overrides: Mapping[str, str], services: Services) -> Iterator[Entry]:
    layers = _layers(services)
    values = stored_log_config(overrides, services.topics.defaults.log_values).values
    for name, key in sorted(TOPIC_KEYS.items()):
        value = value_text(values[name])
        synonyms = list(_synonyms(key.synonyms[0], key.synonyms, layers)) if key.synonyms else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, Source.TOPIC))
        yield Entry(key, value, tuple(synonyms))


def broker_entries(services: Services) -> Iterator[Entry]:
    layers = _layers(services)
    for name, key in sorted(services.settings.keys.items()):
        synonyms = tuple(_synonyms(name, key.synonyms or (name,), layers))
        yield Entry(key, next((layer[name] for _, layer in layers if name in layer), None), synonyms)


def cluster_entries(services: Services) -> Iterator[Entry]:
    """What is set for every broker."""
    for name, value in sorted(services.image.broker_configs.get(CLUSTER_DEFAULT, {}).items()):
        key = services.settings.keys.get(name)
        if key is not None:
            yield Entry(key, value, (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),))
