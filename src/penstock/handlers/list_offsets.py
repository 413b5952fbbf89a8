"""ListOffsets (key 2), versions 1-11, flexible from 6.

Behaviour: for each partition the offset of a timestamp, or of a special one: -1 latest (the high watermark; the last
    stable offset for read_committed), -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered (none).
    A broker that follows is told the log's end as latest. A broker that asks as replica -2, which Kafka has for debugging, is told
    the end and the last epoch of any replica: the controller looks for the longest log.
    A new leader knows what was committed when its followers have fetched. Until then a client is told neither the latest offset nor
    that none is found: that could be less than it was told before (KIP-207).
Versions: 2 isolation level; 4 leader epoch; 5 OFFSET_NOT_AVAILABLE, for which there is LEADER_NOT_AVAILABLE before; 6 flexible;
    7 largest timestamp (KIP-734); 8 earliest local; 9 latest tiered; 10 timeout; 11 earliest pending upload (none).
    A special timestamp in a version that does not have it is UNSUPPORTED_VERSION.
Differs from Kafka: nothing is tiered, so -5 and -6 find nothing. A leader that leads on in a new epoch goes on telling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.controller.errors import InvalidRequestError
from penstock.handlers.api import Context
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.brokers import is_broker
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import OffsetNotAvailableError, TopicAuthorisationError, UnsupportedVersionError
from penstock.handlers.fetch import READ_COMMITTED
from penstock.handlers.missing import held_partition
from penstock.replication.partition import Partition
from penstock.storage.answers import Bound
from penstock.storage.timestamps import FoundOffset, offset_for_timestamp, offset_of_max_timestamp

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The version that first has each special timestamp."""
_OFFSET_NOT_AVAILABLE_FROM = 5
ANY_REPLICA = -2
_NOT_FOUND = FoundOffset(-1, -1, -1)


def handle_list_offsets(request: Any, context: Context) -> Any:
    response = context.response
    committed = getattr(request, "isolation_level", 0) == READ_COMMITTED
    bound = Bound.LAST_STABLE if committed else Bound.HIGH_WATERMARK
    if request.replica_id >= 0 and is_broker(context):
        bound = Bound.LOG_END
    is_controller = request.replica_id == ANY_REPLICA and context.services.cluster is not None and is_broker(context)
    find = _find_log_end if is_controller else find_offset
    topics = []
    for topic in request.topics:
        if not topic.partitions:
            continue
        repeated = Counter(entry.partition_index for entry in topic.partitions)
        partitions = tuple(
            _partition(
                response, topic.name, entry, bound, context, find, is_repeated=repeated[entry.partition_index] > 1
            )
            for entry in {entry.partition_index: entry for entry in topic.partitions}.values()
        )
        topics.append(response.topics.make(name=topic.name, partitions=partitions))
    return response.make(throttle_time=timedelta(), topics=tuple(topics))


def _partition(
    response: Any,
    topic: str,
    entry: Any,
    bound: Bound,
    context: Context,
    find: Callable[[Partition, int, Bound], FoundOffset],
    *,
    is_repeated: bool,
) -> Any:
    error_code, found = ErrorCode.none, _NOT_FOUND
    try:
        if not context.services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.TOPIC, topic):
            raise TopicAuthorisationError(f"{context.peer.principal} may not describe topic {topic}")
        if is_repeated:
            raise InvalidRequestError(f"partition {entry.partition_index} of topic {topic} stands twice in the request")
        if entry.timestamp < 0 and context.version < _SINCE.get(entry.timestamp, context.version + 1):
            raise UnsupportedVersionError(f"timestamp {entry.timestamp} means nothing in version {context.version}")
        partition = held_partition(context.services, topic, entry.partition_index)
        if find is find_offset:
            partition.check_leader(getattr(entry, "current_leader_epoch", -1))
        found = find(partition, entry.timestamp, bound)
    except PenstockError as error:
        error_code = code_of(error)
        if error_code is ErrorCode.offset_not_available and context.version < _OFFSET_NOT_AVAILABLE_FROM:
            error_code = ErrorCode.leader_not_available
    return response.topics.partitions.make(
        partition_index=entry.partition_index,
        error_code=error_code,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _find_log_end(partition: Partition, timestamp: int, bound: Bound) -> FoundOffset:
    """Whoever leads: where this replica ends."""
    del timestamp, bound
    return FoundOffset(-1, partition.log.end_offset, partition.log.leader_epochs.latest)


def find_offset(partition: Partition, timestamp: int, bound: Bound) -> FoundOffset:
    """An offset by timestamp; -1 where there is none that the asker may see."""
    log = partition.log
    if timestamp == LATEST:
        _check_committed(partition, bound)
        return FoundOffset(-1, partition.readable_end(bound), partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return FoundOffset(-1, start, log.leader_epochs.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    found = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    if found is None or found.offset >= partition.readable_end(bound):
        _check_committed(partition, bound)
        return _NOT_FOUND
    return found


def _check_committed(partition: Partition, bound: Bound) -> None:
    """Refuses a client while the high watermark may be behind what the leader before told; a broker asks for the end."""
    high_watermark = partition.log.high_watermark
    if bound is not Bound.LOG_END and high_watermark < partition.led_from_offset:
        raise OffsetNotAvailableError(
            f"{partition.topic_partition} is known to be committed up to {high_watermark},"
            f" and was written up to {partition.led_from_offset} when its leader began to lead"
        )
