"""The controller's configuration keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.config import ConfigKey, boolean, integer, table

KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("num.partitions", 1, "Partitions of a topic for which nobody says how many.", low=1),
    integer("default.replication.factor", 1, "Replicas of a topic for which nobody says how many.", low=1),
    boolean("auto.create.topics.enable", True, "Whether asking for a topic creates it.", dynamic=False),
    boolean("delete.topic.enable", True, "Whether topics can be deleted.", dynamic=False),
)
