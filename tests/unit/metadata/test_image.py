"""The image follows the store's confirmed transactions."""

from __future__ import annotations

import uuid
from collections import UserDict
from collections.abc import KeysView
from pathlib import Path

from penstock.base.clock import ManualClock
from penstock.base.files import SystemFiles
from penstock.metadata import layout
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.image import Image, PartitionImage
from penstock.metadata.layout import BrokerNode, Endpoint, PartitionState, TopicNode
from penstock.metadata.store import Committed, Create, Delete, SetData, Transaction

TOPIC_ID = uuid.UUID(int=77)


def run(store: EmbeddedStore, image: Image, *operations: Create | SetData | Delete) -> set[str]:
    store.submit(Transaction(operations=operations))
    store.sync()
    store.synced(store.journal_position)
    touched: set[str] = set()
    for event in store.take_events():
        assert isinstance(event, Committed), event
        touched |= image.apply(event)
    return touched


def test_topics_brokers_and_configs_follow_and_a_second_image_is_loaded_alike(tmp_path: Path) -> None:
    store = EmbeddedStore(SystemFiles(), str(tmp_path), ManualClock())
    image = Image()
    run(store, image, *layout.permanent_nodes(()))
    state = PartitionState(leader=1, leader_epoch=0, isr=(1,), extra={"eligible": [2]})
    broker = BrokerNode(
        broker_id=1,
        endpoints=(Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="::1", port=9092),),
        rack="r",
    )
    touched = run(
        store,
        image,
        Create(path="/brokers/ids/1", data=layout.encode_broker(broker, 5), ephemeral=True),
        Create(
            path=layout.topic_path("t"),
            data=layout.encode_topic(TopicNode(topic_id=TOPIC_ID, replicas={0: (1,), 10: (1,), 2: (1,)})),
        ),
        Create(path="/brokers/topics/t/partitions"),
        Create(path="/brokers/topics/t/partitions/0"),
        Create(path=layout.state_path("t", 0), data=layout.encode_state(state)),
        Create(path=layout.topic_config_path("t"), data=layout.encode_config({"segment.bytes": "100"})),
        Create(path=layout.CLUSTER_ID, data=layout.encode_cluster_id("abc")),
    )
    assert touched == {"t"}
    assert image.brokers == {1: broker}
    assert image.cluster_id == "abc"
    assert list(image.topics["t"].partitions) == [0, 2, 10]
    found = image.topic_by_id(TOPIC_ID.bytes)
    assert found is not None
    assert found.partitions[0][1:5] == (1, 0, (1,), 0)
    assert found.partitions[2].leader == -1
    assert image.topic_configs == {"t": {"segment.bytes": "100"}}

    run(store, image, SetData(path=layout.state_path("t", 0), data=layout.encode_state(state)))
    partition = image.partition("t", 0)
    assert partition is not None
    assert partition.state_version == 1
    assert layout.decode_state("", layout.encode_state(state)) == state

    second = Image()
    second.load(store.nodes())
    assert second.topics == image.topics
    assert second.names_by_id == image.names_by_id
    assert second.brokers == image.brokers


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    store = EmbeddedStore(SystemFiles(), str(tmp_path), ManualClock())
    image = Image()
    run(store, image, *layout.permanent_nodes(()))
    node = TopicNode(topic_id=TOPIC_ID, replicas={0: (1,)})
    run(store, image, Create(path=layout.topic_path("t"), data=layout.encode_topic(node)))
    assert run(store, image, Delete(path=layout.topic_path("t"))) == {"t"}
    assert (image.topics, image.names_by_id) == ({}, {})


class CountedCopies(UserDict[int, PartitionImage]):
    copies = 0

    def keys(self) -> KeysView[int]:
        type(self).copies += 1
        return super().keys()


def test_a_transaction_copies_a_topic_once_however_many_of_its_partitions_it_changes(tmp_path: Path) -> None:
    store = EmbeddedStore(SystemFiles(), str(tmp_path), ManualClock())
    image = Image()
    run(store, image, *layout.permanent_nodes(()))
    numbers = range(200)
    node = TopicNode(topic_id=TOPIC_ID, replicas=dict.fromkeys(numbers, (1, 2)))
    run(store, image, Create(path=layout.topic_path("t"), data=layout.encode_topic(node)))
    run(store, image, Create(path="/brokers/topics/t/partitions"))
    counted = CountedCopies(image.topics["t"].partitions)
    held = image.topics["t"] = image.topics["t"]._replace(partitions=counted)
    CountedCopies.copies = 0
    state = PartitionState(leader=2, leader_epoch=0, isr=(1, 2))
    made: list[Create] = []
    for number in numbers:
        made.append(Create(path=f"/brokers/topics/t/partitions/{number}"))
        made.append(Create(path=layout.state_path("t", number), data=layout.encode_state(state)))
    run(store, image, *made)
    assert CountedCopies.copies == 1
    assert {one.leader for one in image.topics["t"].partitions.values()} == {2}
    assert {one.leader for one in held.partitions.values()} == {-1}, "whoever holds a topic keeps what it holds"

    known = image.topics["t"]
    image.forget_partitions("t", set(numbers[:-1]))
    assert list(image.topics["t"].partitions) == [199]
    assert len(known.partitions) == 200
    image.forget_partitions("t", {199})
    assert (image.topics, image.names_by_id) == ({}, {})
