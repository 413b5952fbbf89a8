"""The requests of transactional producers, one call each, over any way of sending them: a served broker's socket, Apache
Kafka's, or a broker without sockets. Replies are reduced to what two brokers can be compared by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.index import load_request_schema

from penstock.client.config import ClientConfig, parse_addresses
from penstock.client.connection import Connection
from penstock.protocol.schemas import Shape
from penstock.records.build import build_batch

Call = Callable[[int, int, Any], Any]


class Stamp(NamedTuple):
    """An error's name, and a producer's id and epoch where the answer has them."""

    error: str
    producer_id: int = -1
    epoch: int = -1


def request(key: int, version: int) -> Shape:
    return Shape(load_request_schema(key, version))


def connection_to(servers: str) -> Connection:
    addresses = parse_addresses((servers,))
    return Connection(addresses[0], ClientConfig(bootstrap_servers=addresses))


class TransactionRequests:
    def __init__(self, call: Call) -> None:
        self._call = call

    def find_coordinator(self, key: str, key_type: int) -> str:
        answer = self._call(10, 4, request(10, 4).make(key_type=key_type, coordinator_keys=(key,)))
        return str(answer.coordinators[0].error_code.name)

    def init(
        self,
        transactional_id: str | None,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int = 5,
    ) -> Stamp:
        answer = self._call(
            22,
            version,
            request(22, version).make(
                transactional_id=transactional_id,
                transaction_timeout=timedelta(milliseconds=timeout_ms),
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
        )
        return Stamp(answer.error_code.name, answer.producer_id, answer.producer_epoch)

    def add_partitions(
        self, transactional_id: str, producer: Stamp, partitions: Iterable[tuple[str, int]], version: int = 3
    ) -> dict[tuple[str, int], str]:
        shape = request(24, version)
        answer = self._call(
            24,
            version,
            shape.make(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=_topics(shape.v3_and_below_topics, partitions),
            ),
        )
        return _results(answer.results_by_topic_v3_and_below)

    def verify(
        self,
        transactional_id: str,
        producer: Stamp,
        partitions: Iterable[tuple[str, int]],
        *,
        verify_only: bool = True,
        version: int = 5,
    ) -> dict[tuple[str, int], str]:
        shape = request(24, version)
        one = shape.transactions.make(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=_topics(shape.transactions.topics, partitions),
        )
        answer = self._call(24, version, shape.make(transactions=(one,)))
        return _results(answer.results_by_transaction[0].topic_results)

    def add_offsets(self, transactional_id: str, producer: Stamp, group_id: str, version: int = 4) -> str:
        answer = self._call(
            25,
            version,
            request(25, version).make(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group_id,
            ),
        )
        return str(answer.error_code.name)

    def end(self, transactional_id: str, producer: Stamp, *, commit: bool, version: int) -> Stamp:
        answer = self._call(
            26,
            version,
            request(26, version).make(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            ),
        )
        stamp = (answer.producer_id, answer.producer_epoch) if version >= 5 else (-1, -1)
        return Stamp(answer.error_code.name, *stamp)

    def produce(
        self,
        transactional_id: str | None,
        producer: Stamp,
        topic: str,
        partition: int,
        values: Iterable[bytes],
        *,
        sequence: int,
        version: int,
        transactional: bool = True,
    ) -> tuple[str, int]:
        """The error's name and the base offset."""
        records = build_batch(
            [(1_700_000_000_000, None, value, ()) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        shape = request(0, version)
        data = shape.topic_data.make(
            name=topic, partition_data=(shape.topic_data.partition_data.make(index=partition, records=records),)
        )
        answer = self._call(
            0,
            version,
            shape.make(transactional_id=transactional_id, acks=-1, timeout=timedelta(seconds=30), topic_data=(data,)),
        )
        one = answer.responses[0].partition_responses[0]
        return one.error_code.name, one.base_offset

    def commit_offset(
        self,
        transactional_id: str,
        producer: Stamp,
        group_id: str,
        place: tuple[str, int],
        offset: int,
        *,
        version: int,
        metadata: str | None = None,
        generation: int = -1,
        member_id: str = "",
    ) -> str:
        shape = request(28, version)
        partition = shape.topics.partitions.make(
            partition_index=place[1],
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=metadata,
        )
        answer = self._call(
            28,
            version,
            shape.make(
                transactional_id=transactional_id,
                group_id=group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=None,
                topics=(shape.topics.make(name=place[0], partitions=(partition,)),),
            ),
        )
        return str(answer.topics[0].partitions[0].error_code.name)

    def committed(self, group_id: str, place: tuple[str, int], *, require_stable: bool) -> tuple[str, int]:
        shape = request(9, 8)
        topic = shape.groups.topics.make(name=place[0], partition_indexes=(place[1],))
        answer = self._call(
            9,
            8,
            shape.make(groups=(shape.groups.make(group_id=group_id, topics=(topic,)),), require_stable=require_stable),
        )
        found = answer.groups[0]
        if found.error_code != 0:
            return found.error_code.name, -1
        one = found.topics[0].partitions[0]
        return one.error_code.name, one.committed_offset

    def end_offset(self, topic: str, partition: int, *, committed: bool) -> int:
        """The high watermark, or the last stable offset."""
        shape = request(2, 8)
        one = shape.topics.partitions.make(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
        answer = self._call(
            2,
            8,
            shape.make(
                replica_id=-1,
                isolation_level=1 if committed else 0,
                topics=(shape.topics.make(name=topic, partitions=(one,)),),
            ),
        )
        return int(answer.topics[0].partitions[0].offset)

    def states(self) -> dict[str, str]:
        answer = self._call(66, 0, request(66, 0).make(state_filters=(), producer_id_filters=()))
        return {one.transactional_id: one.transaction_state for one in answer.transaction_states}

    def producers(self, place: tuple[str, int]) -> list[tuple[int, int, int, int]]:
        """Of every producer of a partition: id, epoch, last sequence, where its open transaction begins."""
        shape = request(61, 0)
        answer = self._call(
            61, 0, shape.make(topics=(shape.topics.make(name=place[0], partition_indexes=(place[1],)),))
        )
        (found,) = answer.topics[0].partitions
        return [
            (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
            for one in found.active_producers
        ]

    def delete_offset(self, group_id: str, place: tuple[str, int]) -> str:
        shape = request(47, 0)
        partition = shape.topics.partitions.make(partition_index=place[1])
        topic = shape.topics.make(name=place[0], partitions=(partition,))
        answer = self._call(47, 0, shape.make(group_id=group_id, topics=(topic,)))
        if answer.error_code != 0:
            return str(answer.error_code.name)
        return str(answer.topics[0].partitions[0].error_code.name)

    def delete_group(self, group_id: str) -> str:
        answer = self._call(42, 2, request(42, 2).make(groups_names=(group_id,)))
        return str(answer.results[0].error_code.name)

    def write_marker(
        self,
        producer: Stamp,
        place: tuple[str, int],
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        version: int = 1,
        transaction_version: int = 0,
    ) -> str:
        shape = request(27, version)
        topic = shape.markers.topics.make(name=place[0], partition_indexes=(place[1],))
        marker = shape.markers.make(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=commit,
            topics=(topic,),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self._call(27, version, shape.make(markers=(marker,)))
        return str(answer.markers[0].topics[0].partitions[0].error_code.name)


def _topics(shape: Any, partitions: Iterable[tuple[str, int]]) -> tuple[Any, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return tuple(shape.make(name=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items())


def _results(topics: Any) -> dict[tuple[str, int], str]:
    return {
        (topic.name, one.partition_index): one.partition_error_code.name
        for topic in topics
        for one in topic.results_by_partition
    }
