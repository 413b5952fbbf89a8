"""Kafka's layout of the tree: the paths, and the JSON in the nodes (Kafka 3.9, ZooKeeper mode)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.base.errors import CorruptFileError
from penstock.base.ids import TopicPartition, topic_id_from_text, topic_id_text
from penstock.metadata.store import Create

BROKERS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG_CHANGES = "/config/changes"
LOG_DIRECTORY_EVENTS = "/log_dir_event_notification"
DELETED_TOPICS = "/admin/delete_topics"
PRODUCER_IDS = "/latest_producer_id_block"
FEATURES = "/feature"

PERMANENT = (
    "/brokers",
    BROKERS,
    BROKER_SEQUENCE,
    TOPICS,
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    "/config/clients",
    "/config/users",
    "/config/ips",
    CONFIG_CHANGES,
    "/admin",
    DELETED_TOPICS,
    "/cluster",
    "/isr_change_notification",
    LOG_DIRECTORY_EVENTS,
    FEATURES,
)
"""Nodes that are there before anything else is."""

NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    generation: str = ""
    """Of its logs: drawn anew when they may have lost what they had. Empty where nobody says."""
    epoch: int = -1
    """Which life of the broker this is: the transaction that made its node. -1 where it is not known."""

    def endpoint(self, listener: str) -> Endpoint:
        """Where a listener is reached; the first one where there is none of this name."""
        named = [one for one in self.endpoints if one.listener.upper() == listener.upper()]
        return (named or self.endpoints)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNode:
    topic_id: uuid.UUID
    replicas: Mapping[int, tuple[int, ...]]
    """Broker ids by partition, the preferred leader first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 1
    extra: Mapping[str, object] = field(default_factory=dict)
    """Keys that only we write; Kafka ignores them."""


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def deletion_mark(topic: str) -> str:
    """A topic is being deleted while this node is there: its logs go first, then what the tree says of it, then the mark."""
    return f"{DELETED_TOPICS}/{topic}"


def topic_of(path: str) -> str | None:
    """The topic whose own node this is; None for every other path."""
    return _child_of(TOPICS, path)


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def partition_of(path: str) -> TopicPartition | None:
    """The partition whose `state` this is; None for every other path."""
    parts = path.split("/")
    if len(parts) == 7 and path.startswith(f"{TOPICS}/") and parts[4] == "partitions" and parts[6] == "state":
        return TopicPartition(parts[3], int(parts[5]))
    return None


def config_topic_of(path: str) -> str | None:
    """The topic whose configuration this is; None for every other path."""
    return _child_of(TOPIC_CONFIGS, path)


def _child_of(parent: str, path: str) -> str | None:
    if not path.startswith(f"{parent}/"):
        return None
    name = path[len(parent) + 1 :]
    return name if name and "/" not in name else None


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


CLUSTER_DEFAULT = "<default>"
"""The entity that stands for every broker."""


def broker_config_path(entity: str) -> str:
    return f"{BROKER_CONFIGS}/{entity}"


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(path: str, data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(path, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(path, "is not a JSON object")
    return value


def encode_topic(topic: TopicNode) -> bytes:
    return _json(
        {
            "removing_replicas": {},
            "partitions": {str(partition): list(replicas) for partition, replicas in topic.replicas.items()},
            "topic_id": topic_id_text(topic.topic_id),
            "adding_replicas": {},
            "version": 3,
        }
    )


def written_over(path: str, before: bytes, after: bytes) -> bytes:
    """What to write at `path` so that keys of `before` that we know nothing of stay; those that `after` has are its own."""
    return _json({**_load(path, before), **_load(path, after)}) if before else after


def decode_topic(path: str, data: bytes) -> TopicNode:
    value = _load(path, data)
    partitions = value["partitions"]
    assert isinstance(partitions, dict)
    return TopicNode(
        topic_id=topic_id_from_text(str(value["topic_id"])),
        replicas={int(partition): tuple(replicas) for partition, replicas in partitions.items()},
    )


_STATE_KEYS = ("controller_epoch", "leader", "version", "leader_epoch", "isr")


def encode_state(state: PartitionState) -> bytes:
    return _json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **state.extra,
        }
    )


def decode_state(path: str, data: bytes) -> PartitionState:
    value = _load(path, data)
    isr = value["isr"]
    leader, leader_epoch, controller_epoch = value["leader"], value["leader_epoch"], value["controller_epoch"]
    assert isinstance(isr, list)
    assert isinstance(leader, int)
    assert isinstance(leader_epoch, int)
    assert isinstance(controller_epoch, int)
    return PartitionState(
        leader=leader,
        leader_epoch=leader_epoch,
        isr=tuple(isr),
        controller_epoch=controller_epoch,
        extra={key: kept for key, kept in value.items() if key not in _STATE_KEYS},
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    config = _load(path, data).get("config", {})
    if not isinstance(config, dict):
        raise CorruptFileError(path, "has no configuration")
    return {str(name): str(value) for name, value in config.items()}


def encode_broker(broker: BrokerNode, wall_ms: int) -> bytes:
    first = broker.endpoints[0]
    return _json(
        {
            "features": {},
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
            },
            "endpoints": [f"{one.listener}://{_host(one.host)}:{one.port}" for one in broker.endpoints],
            "jmx_port": -1,
            "port": first.port,
            "host": first.host,
            "version": 5,
            "timestamp": str(wall_ms),
            **({} if broker.rack is None else {"rack": broker.rack}),
            **({"log_generation": broker.generation} if broker.generation else {}),
        }
    )


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def decode_broker(path: str, data: bytes) -> BrokerNode:
    value = _load(path, data)
    protocols, texts, rack = value["listener_security_protocol_map"], value["endpoints"], value.get("rack")
    assert isinstance(protocols, dict)
    assert isinstance(texts, list)
    endpoints = []
    for text in texts:
        listener, _, rest = str(text).partition("://")
        host, _, port = rest.rpartition(":")
        endpoints.append(
            Endpoint(listener=listener, security_protocol=protocols[listener], host=host.strip("[]"), port=int(port))
        )
    return BrokerNode(
        broker_id=int(path.rpartition("/")[2]),
        endpoints=tuple(endpoints),
        rack=None if rack is None else str(rack),
        generation=str(value.get("log_generation", "")),
    )


def encode_controller(broker_id: int, wall_ms: int) -> bytes:
    return _json({"version": 2, "brokerid": broker_id, "timestamp": str(wall_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return int(str(_load(CONTROLLER, data)["brokerid"]))


def encode_config_change(entity_path: str) -> bytes:
    """Told under `/config/changes`: which configuration is new, as `topics/NAME` or `brokers/ID`."""
    return _json({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    return str(_load(path, data).get("entity_path", ""))


def encode_log_directory_event(broker_id: int) -> bytes:
    return _json({"version": 1, "broker": broker_id, "event": 1})


def decode_log_directory_event(path: str, data: bytes) -> int:
    """The broker that lost a log directory."""
    return int(str(_load(path, data)["broker"]))


def encode_cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(_load(CLUSTER_ID, data)["id"])


def encode_producer_ids(broker_id: int, block_start: int, block_end: int) -> bytes:
    return _json({"version": 1, "broker": broker_id, "block_start": str(block_start), "block_end": str(block_end)})


def decode_producer_ids(data: bytes) -> tuple[int, int]:
    """First and last id of the newest block."""
    value = _load(PRODUCER_IDS, data)
    return int(str(value["block_start"])), int(str(value["block_end"]))


_NO_FEATURES = _json({"features": {}, "version": 2, "status": 1})
"""Levels come with the version of Penstock; Kafka's tools find the node, and nothing in it that could be changed."""


def permanent_nodes(present: Collection[str]) -> tuple[Create, ...]:
    """What to make so that every permanent node is there."""
    return tuple(
        Create(path=path, data=_NO_FEATURES if path == FEATURES else b"") for path in PERMANENT if path not in present
    )
