"""Transactions across brokers: a coordinator's markers to partitions that others lead, and a leader's questions to a
coordinator elsewhere. What is meant for this broker goes to it straight."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.coordinator.errors import CoordinatorNotAvailableError
from penstock.coordinator.transactions.messages import ProducerStamp
from penstock.drivers.loop import Loop
from penstock.drivers.markers import Marker, MarkerWriter
from penstock.drivers.shards import Then
from penstock.metadata.image import Image
from penstock.peers.channels import call
from penstock.peers.errors import error_of
from penstock.peers.links import Links, OpenLink
from penstock.peers.messages import Call
from penstock.replication.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError

WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION = 27, 2
ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION = 24, 5

Outcomes = dict[TopicPartition, PenstockError | None]


class ClusterMarkers:
    """Writes markers wherever their partition is led. Those of one turn for one leader leave together."""

    def __init__(self, node_id: int, loop: Loop, image: Image, local: MarkerWriter, open_link: OpenLink) -> None:
        self._node_id = node_id
        self._loop = loop
        self._image = image
        self._local = local
        self.links = Links(open_link)
        self._waiting: dict[int, list[tuple[TopicPartition, Marker, Then]]] = {}

    def write(self, topic_partition: TopicPartition, marker: Marker, then: Then) -> None:
        state = self._image.partition(*topic_partition)
        if state is None:
            then(UnknownTopicOrPartitionError(f"{topic_partition} is not known here"))
        elif state.leader == self._node_id:
            self._local.write(topic_partition, marker, then)
        elif state.leader not in self._image.brokers:
            then(NotLeaderOrFollowerError(f"{topic_partition} has no leader"))
        else:
            if not self._waiting:
                self._loop.call_soon(self._send)
            self._waiting.setdefault(state.leader, []).append((topic_partition, marker, then))

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for leader, markers in waiting.items():
            codec = call_codec(WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION)
            shape = codec.request.markers
            request = codec.request.make(
                markers=tuple(
                    shape.make(
                        producer_id=marker.producer_id,
                        producer_epoch=marker.producer_epoch,
                        transaction_result=marker.commit,
                        topics=(shape.topics.make(name=topic, partition_indexes=(partition,)),),
                        coordinator_epoch=marker.coordinator_epoch,
                        transaction_version=marker.version,
                    )
                    for (topic, partition), marker, _ in markers
                )
            )
            asked = Call(WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION, codec.encode(request))
            call(self.links.to(leader), asked, partial(self._answered, markers))

    @staticmethod
    def _answered(markers: list[tuple[TopicPartition, Marker, Then]], answer: Any) -> None:
        if isinstance(answer, PenstockError):
            for _, _, then in markers:
                then(answer)
            return
        for (topic_partition, _, then), entry in zip(markers, answer.markers, strict=False):
            code = entry.topics[0].partitions[0].error_code
            then(error_of(code, f"a marker for {topic_partition}"))


class CoordinatorQuestions:
    """Asks the coordinator of a transaction, on another broker, about partitions (KIP-890)."""

    def __init__(self, image: Image, open_link: OpenLink) -> None:
        self._image = image
        self.links = Links(open_link)

    def ask(
        self,
        coordinator_id: int,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        then: Callable[[Outcomes], object],
        *,
        add: bool,
    ) -> None:
        """`then` gets an error for each partition, or None where it is part of the transaction, or was made so."""
        asked = tuple(partitions)
        if coordinator_id not in self._image.brokers:
            then(dict.fromkeys(asked, CoordinatorNotAvailableError(f"{transactional_id} has no coordinator for now")))
            return
        codec = call_codec(ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION)
        shape = codec.request.transactions
        topics: dict[str, list[int]] = {}
        for topic, partition in asked:
            topics.setdefault(topic, []).append(partition)
        request = codec.request.make(
            transactions=(
                shape.make(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    verify_only=not add,
                    topics=tuple(
                        shape.topics.make(name=topic, partitions=tuple(numbers)) for topic, numbers in topics.items()
                    ),
                ),
            )
        )
        encoded = Call(ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, codec.encode(request))
        call(self.links.to(coordinator_id), encoded, partial(_answered, asked, then))


def _answered(asked: tuple[TopicPartition, ...], then: Callable[[Outcomes], object], answer: Any) -> None:
    if isinstance(answer, PenstockError):
        then(dict.fromkeys(asked, CoordinatorNotAvailableError(str(answer))))
        return
    refused = error_of(answer.error_code, "a question about a transaction")
    found: Outcomes = {
        TopicPartition(str(topic.name), one.partition_index): error_of(one.partition_error_code, "the partition")
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
    silent = refused or CoordinatorNotAvailableError("the coordinator said nothing of it")
    then({one: found.get(one, silent) for one in asked})
