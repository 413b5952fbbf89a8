"""A controller's view made by hand: brokers, one topic, and what a decision would leave of it."""

from __future__ import annotations

import json
import uuid

from penstock.base.ids import TopicPartition
from penstock.controller.cluster import ELIGIBLE, GENERATIONS, Cluster
from penstock.metadata import layout
from penstock.metadata.image import PartitionImage, TopicImage
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.metadata.store import Create, Operation, SetData

TOPIC_ID = uuid.UUID(int=7)
KEY = TopicPartition("t", 0)


def broker(broker_id: int, *, generation: str = "g", epoch: int = 1) -> BrokerNode:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9000 + broker_id)
    return BrokerNode(broker_id=broker_id, endpoints=(endpoint,), generation=generation, epoch=epoch)


def state(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    eligible: tuple[int, ...] = (),
    generations: dict[int, str] | None = None,
    **extra: object,
) -> PartitionImage:
    recorded = generations if generations is not None else dict.fromkeys((*isr, *eligible), "g")
    told = {GENERATIONS: {str(one): value for one, value in recorded.items()}, ELIGIBLE: list(eligible), **extra}
    return PartitionImage(replicas, leader, 5, isr, 3, 1, told)


def make_cluster(
    *alive: int | BrokerNode,
    partitions: dict[int, PartitionImage] | None = None,
    min_isr: int = 2,
    unclean: bool = False,
) -> Cluster:
    cluster = Cluster(controller_id=1, controller_epoch=4, epoch_version=9)
    nodes = [one if isinstance(one, BrokerNode) else broker(one) for one in alive]
    cluster.image.brokers = {one.broker_id: one for one in nodes}
    cluster.image.topics = {"t": TopicImage("t", TOPIC_ID, partitions or {0: state()})}
    cluster.image.names_by_id = {TOPIC_ID.bytes: "t"}
    cluster.image.topic_configs = {
        "t": {"min.insync.replicas": str(min_isr), "unclean.leader.election.enable": str(unclean).lower()}
    }
    return cluster


class Written:
    """One written state."""

    def __init__(self, operation: Operation) -> None:
        assert isinstance(operation, SetData | Create)
        self.operation = operation
        decoded = layout.decode_state(operation.path, operation.data)
        self.leader, self.isr, self.leader_epoch = decoded.leader, decoded.isr, decoded.leader_epoch
        self.controller_epoch = decoded.controller_epoch
        raw = json.loads(operation.data)
        self.eligible = tuple(raw.get(ELIGIBLE, ()))
        self.generations = {int(one): value for one, value in raw.get(GENERATIONS, {}).items()}
        self.raw = raw


def only(operations: list[Operation]) -> Written:
    (operation,) = operations
    return Written(operation)
