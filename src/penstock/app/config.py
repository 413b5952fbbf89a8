"""A broker's configuration: every room's keys, read from a file, options and defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.config import ConfigKey, integer, table, text
from penstock.base.errors import ConfigError
from penstock.controller import config as controller
from penstock.coordinator.groups import config as groups
from penstock.coordinator.transactions import config as transactions
from penstock.replication import config as replication
from penstock.server import config as server
from penstock.server.listener import Address, parse_listener
from penstock.storage import config as storage

OWN_KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("node.id", 1, "This broker's number.", low=0, dynamic=False, synonyms=("broker.id",)),
    integer("broker.id", -1, "This broker's number, where `node.id` is not set.", low=-1, dynamic=False),
    text("broker.rack", "", "Where this broker stands.", dynamic=False),
)

KEYS: Mapping[str, ConfigKey[Any]] = {
    **OWN_KEYS,
    **storage.BROKER_KEYS,
    **server.KEYS,
    **replication.KEYS,
    **controller.KEYS,
    **groups.KEYS,
    **transactions.KEYS,
}

_KRAFT_ONLY = ("process.roles", "controller.", "metadata.", "quorum.")
_DATA_DEFAULT = "penstock-data"


def read_properties(content: str) -> dict[str, str]:
    """A Java properties file: `key=value`, comments, continued lines."""
    settings: dict[str, str] = {}
    pending = ""
    for line in content.splitlines():
        line = pending + line.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        key, separator, value = line.partition("=")
        if not separator:
            key, separator, value = line.partition(":")
        if not separator:
            raise ConfigError(f"{line!r} is not a setting; write key=value")
        settings[key.strip()] = value.strip()
    return settings


def merge(file_content: str | None, data: str | None, listen: str | None, assignments: Iterable[str]) -> dict[str, str]:
    """Options over the file: `--set` beats `--listen` and `--data`, which beat the file."""
    settings = {} if file_content is None else read_properties(file_content)
    if data is not None:
        settings.pop("log.dir", None)
        settings["log.dirs"] = data
    if listen is not None:
        settings["listeners"] = listen if "://" in listen else f"PLAINTEXT://{listen}"
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"--set {assignment!r} is not a setting; write key=value")
        settings[key.strip()] = value.strip()
    return settings


class BrokerConfig:
    """Settings, checked. `complaints` names what was given and is not used."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        if "zookeeper.connect" in settings:
            raise ConfigError("zookeeper.connect is set: clusters with ZooKeeper are not supported yet; remove it")
        self.given = dict(settings)
        self.keys = KEYS
        self.complaints = list(_complaints(settings))
        self._values = {
            name: key.read(settings[name]) if name in settings else key.default for name, key in KEYS.items()
        }
        self.log_values = storage.broker_defaults(settings)
        self.node_id: int = self._values["node.id"]
        if "node.id" not in settings and self._values["broker.id"] >= 0:
            self.node_id = self._values["broker.id"]
        self.log_directories: tuple[str, ...] = self._values["log.dirs"] or (
            (self._values["log.dir"],) if self._values["log.dir"] else (_DATA_DEFAULT,)
        )
        protocols = dict(
            entry.partition(":")[::2] for entry in self._values["listener.security.protocol.map"] if ":" in entry
        )
        self.listeners = tuple(
            listener
            for listener in map(parse_listener, self._values["listeners"])
            if listener.name != settings.get("controller.listener.names", "")
        )
        self._check_listeners(protocols)
        self.advertised: dict[str, Address] = {
            address.name: address for address in map(parse_listener, self._values["advertised.listeners"])
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def _check_listeners(self, protocols: Mapping[str, str]) -> None:
        if not self.listeners:
            raise ConfigError("listeners is empty: a broker listens somewhere")
        for listener in self.listeners:
            protocol = protocols.get(listener.name)
            if protocol is None:
                raise ConfigError(f"listener {listener.name} has no entry in listener.security.protocol.map")
            if protocol != "PLAINTEXT":
                raise ConfigError(f"listener {listener.name} is {protocol}: only PLAINTEXT is supported yet")

    # What handlers ask for.
    @property
    def auto_create_topics(self) -> bool:
        return bool(self._values["auto.create.topics.enable"])

    @property
    def delete_topics(self) -> bool:
        return bool(self._values["delete.topic.enable"])

    @property
    def fetch_bytes_max(self) -> int:
        return int(self._values["fetch.max.bytes"])


def _complaints(settings: Mapping[str, str]) -> Iterable[str]:
    synonyms = {synonym for key in storage.TOPIC_KEYS.values() for synonym in key.synonyms}
    for name in settings:
        if name in KEYS or name in synonyms:
            continue
        if name.startswith(_KRAFT_ONLY):
            yield f"{name} is for KRaft controllers and not used here"
        elif name in storage.RETIRED_KEYS:
            yield f"{name} is from older versions of Kafka and not used"
        else:
            yield f"{name} is not known and not used"
