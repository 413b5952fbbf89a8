"""A broker's configuration: every room's keys, read from a file, options and defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.app.listeners import read_listeners
from penstock.base.config import ConfigKey, boolean, integer, is_port, table, text, value_text
from penstock.base.errors import ConfigError
from penstock.controller import config as controller
from penstock.coordinator.groups import config as groups
from penstock.coordinator.transactions import config as transactions
from penstock.replication import config as replication
from penstock.server import config as server
from penstock.server.listener import Address, parse_listener
from penstock.storage import config as storage


def _nullable(key: ConfigKey[Any]) -> ConfigKey[Any]:
    """The same key with no default at all."""
    return replace(key, default=None)


_SERVER = r"\s*(\[[0-9a-fA-F:.]+\]|[^\s,/:\[\]]+)(:\d{1,5})?\s*"
_PORT = re.compile(r":(\d+)\s*(?:,|$)")
_ENSEMBLE = re.compile(rf"({_SERVER}(,{_SERVER})*(/(?!\.\.?(/|$))[^/]+)*/?)?")


def _check_ensemble(value: str) -> str | None:
    ports = _PORT.findall(value.partition("/")[0])
    if _ENSEMBLE.fullmatch(value) and all(map(is_port, ports)):
        return None
    return "must be host:port,host:port,... and perhaps a path behind the last"


OWN_KEYS: Mapping[str, ConfigKey[Any]] = table(
    integer("node.id", 1, "This broker's number.", low=0, dynamic=False, synonyms=("broker.id",)),
    integer("broker.id", -1, "This broker's number, where `node.id` is not set.", low=-1, dynamic=False),
    boolean(
        "broker.id.generation.enable",
        True,
        "Whether a broker of a cluster that has no number yet, here or in its directories, is given one.",
        dynamic=False,
    ),
    integer("reserved.broker.max.id", 1_000, "Numbers given to brokers lie above it.", low=0, dynamic=False),
    replace(
        text(
            "zookeeper.connect",
            "",
            "ZooKeeper servers, host:port,... and perhaps a path behind the last; a broker without is a cluster of its own.",
            dynamic=False,
        ),
        check=_check_ensemble,
    ),
    integer(
        "zookeeper.session.timeout.ms",
        6_000,
        "How long ZooKeeper waits for a silent broker.",
        low=1_000,
        high=60_000,
        dynamic=False,
    ),
    integer("zookeeper.connection.timeout.ms", 18_000, "How long a start waits for ZooKeeper.", low=1, dynamic=False),
    _nullable(text("broker.rack", "", "Where this broker stands.", dynamic=False)),
)

KEYS: Mapping[str, ConfigKey[Any]] = {
    **OWN_KEYS,
    **storage.BROKER_KEYS,
    **storage.SYNONYM_KEYS,
    **server.KEYS,
    **replication.KEYS,
    **controller.KEYS,
    **groups.KEYS,
    **transactions.KEYS,
}

DEFAULTS: Mapping[str, str] = {
    name: shown for name, key in KEYS.items() if (shown := value_text(key.default)) is not None
}

_KRAFT_ONLY = ("process.roles", "controller.", "metadata.", "quorum.")
_NO_EFFECT = (
    "num.network.threads",
    "num.io.threads",
    "num.replica.fetchers",
    "background.threads",
    "queued.max.requests",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "replica.",
    "share.coordinator.",
    "group.coordinator.",
    "group.consumer.",
    "group.share.",
    "remote.log.",
    "metric.reporters",
    "metrics.",
    "transaction.state.log.",
)
_DATA_DEFAULT = "penstock-data"


_SETTING = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(content: str) -> dict[str, str]:
    """A Java properties file: `key=value`, `key: value` or `key value`, comments, continued lines, escapes."""
    settings: dict[str, str] = {}
    for line in _logical_lines(content):
        found = _SETTING.fullmatch(line)
        if found is None:
            raise ConfigError(f"{line!r} is not a setting; write key=value")
        key, value = (_ESCAPED.sub(_unescaped, text) for text in found.groups())
        settings[key] = value.strip()
    return settings


def _logical_lines(content: str) -> Iterator[str]:
    """Without comments and empty ones; a backslash at the end of a line joins the next one to it."""
    pending = ""
    for line in re.split(r"\r\n|\r|\n", content):
        line = line.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending.rstrip()
        pending = ""
    if pending:
        yield pending.rstrip()


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _CONTROL.get(text, text)


def merge(file_content: str | None, data: str | None, listen: str | None, assignments: Iterable[str]) -> dict[str, str]:
    """Options over the file: `--set` beats `--listen` and `--data`, which beat the file."""
    settings = {} if file_content is None else read_properties(file_content)
    if data is not None:
        if not data.strip():  # an unset variable, which would mean the default
            raise ConfigError("--data is empty; name a directory for the logs")
        settings.pop("log.dir", None)
        settings["log.dirs"] = data
    if listen is not None:
        # Those of the file belong to the file's listeners: clients would be sent elsewhere.
        settings.pop("advertised.listeners", None)
        settings["listeners"] = listen if "://" in listen else f"PLAINTEXT://{listen}"
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--set {assignment!r} is not a setting; write key=value")
        settings[key.strip()] = value.strip()
    return settings


class BrokerConfig:
    """Settings, checked. `complaints` names what was given and is not used."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.given = dict(settings)
        self.keys = KEYS
        self.defaults = DEFAULTS
        self.complaints = list(_complaints(settings))
        self._values = _read(settings)
        self.log_values = storage.broker_defaults(settings)
        """The broker's values of topic keys. The same mapping for ever: `use_dynamic` changes what is in it."""
        self.node_id: int = self._values["node.id"]
        """Negative for a broker of a cluster that is to find its number: its directories know it, or it is given one."""
        if "node.id" not in settings and (self._values["broker.id"] >= 0 or self._values["zookeeper.connect"]):
            self.node_id = self._values["broker.id"]
        self.log_directories: tuple[str, ...] = self._values["log.dirs"] or (
            (self._values["log.dir"],) if self._values["log.dir"] else (_DATA_DEFAULT,)
        )
        if "log.dirs" in settings and not (self._values["log.dirs"] or self._values["log.dir"]):
            raise ConfigError(
                "log.dirs is empty; name a directory for the logs"
            )  # not the default, which nobody asked for
        self.listeners, self.advertised = read_listeners(self)
        self.metrics_address = _metrics_address(self._values["metrics.listener"])

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def check_dynamic(self, changed: Mapping[str, str]) -> None:
        """Whether these settings could be in force beside those that were given at the start; ConfigError says why not."""
        for name, value in changed.items():
            key = KEYS.get(name)
            if key is None:
                raise ConfigError(f"{name} is not a configuration key of a broker")
            if not key.dynamic:
                raise ConfigError(f"{name} cannot be changed while the broker runs; set it in its file and start again")
            key.read(value)
        storage.broker_defaults({**self.given, **changed})

    def use_dynamic(self, *layers: Mapping[str, str]) -> list[str]:
        """Takes over what was set while brokers ran, later layers over earlier. Returns what cannot be used, and why."""
        merged, complaints = dict(self.given), []
        for layer in layers:
            for name, value in layer.items():
                try:
                    self.check_dynamic({name: value})
                except ConfigError as error:
                    complaints.append(f"{error} (it is stored, and left out)")
                else:
                    merged[name] = value
        self._values = _read(merged)
        self.log_values.clear()
        self.log_values.update(storage.broker_defaults(merged))
        return complaints

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

    @property
    def describe_partitions_max(self) -> int:
        return int(self._values["max.request.partition.size.limit"])


def _read(settings: Mapping[str, str]) -> dict[str, Any]:
    return {name: key.read(settings[name]) if name in settings else key.default for name, key in KEYS.items()}


def _metrics_address(text: str) -> Address | None:
    if not text:
        return None
    try:
        return parse_listener(f"METRICS://{text}")
    except ConfigError:
        raise ConfigError(f"metrics.listener={text!r} is not host:port, e.g. 127.0.0.1:9308") from None


def _complaints(settings: Mapping[str, str]) -> Iterable[str]:
    for name in settings:
        if name.startswith(_KRAFT_ONLY) and name != "controller.socket.timeout.ms":
            yield f"{name} is for KRaft controllers and not used here"
        elif name in KEYS:
            continue
        elif name.startswith(_NO_EFFECT):
            yield f"{name} is a key of Kafka's that has no effect here"
        elif name in storage.RETIRED_KEYS:
            yield f"{name} is from older versions of Kafka and not used"
        else:
            yield f"{name} is not known and not used"
