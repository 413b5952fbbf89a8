"""The controller's first look at the tree: every broker, topic, partition and deletion, with watches."""

from __future__ import annotations

from dataclasses import replace

from penstock.drivers.cluster_store import ClusterStore
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.layout import BrokerNode
from penstock.metadata.store import Node
from penstock.metadata.tree import Kept


def kept(path: str, node: Node) -> Kept:
    stat = node.stat
    return Kept(
        path,
        node.data,
        stat.ephemeral_owner,
        stat.created_zxid,
        stat.modified_zxid,
        stat.children_zxid,
        stat.created_ms,
        stat.modified_ms,
        stat.version,
        stat.children_version,
    )


async def read_brokers(store: ClusterStore) -> dict[int, BrokerNode]:
    """Who is alive, each with the epoch of its life; watched for who comes and goes."""
    names = await store.children(layout.BROKERS, watch=True)
    found = await store.all_data([layout.broker_path(int(name)) for name in names])
    brokers = {}
    for path, node in found.items():
        broker = replace(layout.decode_broker(path, node.data), epoch=node.stat.created_zxid)
        brokers[broker.broker_id] = broker
    return brokers


async def read_topics(store: ClusterStore, image: Image, names: list[str]) -> None:
    """Takes topics into the image with what is written of their partitions; each is watched for more partitions."""
    nodes = await store.all_data([layout.topic_path(name) for name in names], watch=True)
    states = [
        layout.state_path(name, number)
        for name in names
        if (node := nodes.get(layout.topic_path(name))) is not None
        for number in layout.decode_topic(layout.topic_path(name), node.data).replicas
    ]
    found = await store.all_data(states)
    image.load(kept(path, node) for path, node in {**nodes, **found}.items())


async def nodes_below(store: ClusterStore, topic: str) -> set[str]:
    """The nodes below a topic's own. A controller that died may have left some without the others: Kafka writes them in three steps."""
    parent = f"{layout.topic_path(topic)}/partitions"
    if await store.data(parent) is None:
        return set()
    partitions = [f"{parent}/{number}" for number in await store.children(parent)]
    states = await store.all_data([f"{path}/state" for path in partitions])
    return {parent, *partitions, *states}


async def nodes_of(store: ClusterStore, topic: str) -> set[str]:
    """All nodes that say something of a topic. One that is marked as going may be gone already: whoever marked it saw it still."""
    own = await store.all_data([layout.topic_path(topic), layout.topic_config_path(topic)])
    return {*own, *await nodes_below(store, topic)}


async def read_image(store: ClusterStore) -> Image:
    image = Image()
    image.brokers = await read_brokers(store)
    names = await store.children(layout.TOPICS, watch=True)
    await read_topics(store, image, list(names))
    image.deleting = set(await store.children(layout.DELETED_TOPICS, watch=True))
    return image
