"""DeleteRecords (key 21), versions 0-2, flexible from 2.

Behaviour: raises a partition's log start to the offset asked for; -1 means the high watermark. Answers the smallest start of the replicas
    whose brokers are alive, when that is as high or the timeout ends: what one of them still has could come back with it as leader.
Versions: 2 flexible.
Differs from Kafka: a replica that moves between directories is not waited for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import OffsetOutOfRangeError, PenstockError
from penstock.base.ids import InvalidTopicError, TopicPartition
from penstock.controller.errors import PolicyViolationError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.missing import held_partition
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.replication.wait_for_log_start import AwaitedStart, WaitForLogStart

HIGH_WATERMARK = -1


def handle_delete_records(request: Any, context: Context) -> Pending[Any]:
    errors: dict[TopicPartition, PenstockError] = {}
    awaited = []
    for topic in request.topics:
        for entry in topic.partitions:
            key = TopicPartition(topic.name, entry.partition_index)
            try:
                awaited.append(_delete(key, entry.offset, context))
            except PenstockError as error:
                errors[key] = error
    image, waits = context.services.image, context.services.produce_waits
    pending: Pending[Any] = Pending(lambda: waits.drop(operation))

    def answer(ended: WaitForLogStart) -> None:
        pending.resolve(_answer(request, ended, errors | ended.errors, context))

    # Under the same keys as produce requests: whatever tells them of another leader or a failed directory tells this too.
    operation = WaitForLogStart(awaited, lambda broker_id: broker_id in image.brokers, answer)
    waits.finish_or_wait(operation, operation.keys, request.timeout // timedelta(milliseconds=1))
    return pending


def _delete(key: TopicPartition, offset: int, context: Context) -> AwaitedStart:
    services = context.services
    if not services.authoriser.allows(context.peer.principal, Action.DELETE, Resource.TOPIC, key.topic):
        raise TopicAuthorisationError(f"{context.peer.principal} may not delete from topic {key.topic}")
    if key.topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{key.topic} is written by the broker only")
    partition = held_partition(services, key.topic, key.partition)
    partition.check_leader(-1)
    if not partition.log.config.delete:
        raise PolicyViolationError(f"records of {key.topic} go by compaction: its cleanup.policy has no delete")
    log = partition.log
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise OffsetOutOfRangeError(wanted, log.log_start_offset, log.high_watermark)
    log.delete_records(wanted)
    services.fetch_waits.changed(key)  # followers hear of the new start with their next answer
    return AwaitedStart(partition, wanted)


def _answer(request: Any, ended: WaitForLogStart, errors: dict[TopicPartition, PenstockError], context: Context) -> Any:
    response = context.response

    def partition(topic: str, number: int) -> Any:
        key = TopicPartition(topic, number)
        error = errors.get(key)
        error_code = ErrorCode.request_timed_out if key in ended.timed_out else ErrorCode.none
        return response.topics.partitions.make(
            partition_index=number,
            low_watermark=ended.low_watermarks.get(key, -1) if error is None else -1,
            error_code=error_code if error is None else code_of(error),
        )

    topics = tuple(
        response.topics.make(
            name=topic.name,
            partitions=tuple(partition(topic.name, entry.partition_index) for entry in topic.partitions),
        )
        for topic in request.topics
    )
    return response.make(throttle_time=timedelta(), topics=topics)
