"""DescribeLogDirs (key 35), versions 1-5, flexible from 2, and AlterReplicaLogDirs (key 34), versions 1-2, flexible from 2.

Behaviour: 35 tells of each log directory its disk and the replicas in it, with their sizes, and those on their way to it
    (`is_future_key`, with how far they are behind). 34 moves replicas between directories while they are used; it answers
    when the moves have begun. A partition that is not here is made in the directory named for it, if it comes.
Versions: 35: 3 an error of the whole answer; 4 the disk's size and what is left of it; 5 cordoned directories.
Differs from Kafka: a partition that is not here is REPLICA_NOT_AVAILABLE, and its directory is not remembered; no directory
    is cordoned; moves are not throttled.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.disk import absolute, disk_space
from penstock.base.errors import LogDirectoryError, PenstockError, StorageError
from penstock.base.ids import InvalidTopicError, TopicPartition
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import ClusterAuthorisationError, ReplicaNotAvailableError
from penstock.handlers.missing import why_missing
from penstock.storage.directory_state import DirectoryState

_NAME_MAX = 255
_FUTURE_SUFFIX_CHARACTERS = len(".-future") + 32
_UNKNOWN_BYTES = -1


def handle_describe_log_dirs(request: Any, context: Context) -> Any:
    response, services = context.response, context.services
    if not services.authoriser.allows(context.peer.principal, Action.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return response.make(throttle_time=timedelta(), error_code=ErrorCode.cluster_authorization_failed, results=())
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    online = {state.path: state for state in services.directories.directories}
    paths = dict.fromkeys([*online, *(path.rstrip("/") or "/" for path in services.directories.offline)])
    results = tuple(_directory(path, online.get(path), wanted, context) for path in paths)
    return response.make(throttle_time=timedelta(), error_code=ErrorCode.none, results=results)


def _directory(path: str, state: DirectoryState | None, wanted: set[TopicPartition] | None, context: Context) -> Any:
    shape = context.response.results
    if state is None or state.health.failure is not None:
        return shape.make(
            error_code=ErrorCode.kafka_storage_error,
            log_dir=absolute(path),
            topics=(),
            total_bytes=_UNKNOWN_BYTES,
            usable_bytes=_UNKNOWN_BYTES,
            is_cordoned=False,
        )
    services = context.services
    by_topic: dict[str, list[Any]] = {}
    for key, log in services.directories.logs.items():
        if services.directories.home(key) is state and (wanted is None or key in wanted):
            by_topic.setdefault(key.topic, []).append(_replica(shape, key.partition, log.log.size_bytes, 0, False))
    for key, move in services.moves.running.items():
        if move.target is state and move.future is not None and (wanted is None or key in wanted):
            size = move.future.log.size_bytes
            by_topic.setdefault(key.topic, []).append(_replica(shape, key.partition, size, move.offset_lag, True))
    space = disk_space(state.path)
    return shape.make(
        error_code=ErrorCode.none,
        log_dir=absolute(path),
        topics=tuple(shape.topics.make(name=name, partitions=tuple(told)) for name, told in by_topic.items()),
        total_bytes=_UNKNOWN_BYTES if space is None else space.total_bytes,
        usable_bytes=_UNKNOWN_BYTES if space is None else space.usable_bytes,
        is_cordoned=False,
    )


def _replica(shape: Any, number: int, size_bytes: int, offset_lag: int, is_future: bool) -> Any:
    return shape.topics.partitions.make(
        partition_index=number, partition_size=size_bytes, offset_lag=offset_lag, is_future_key=is_future
    )


def handle_alter_replica_log_dirs(request: Any, context: Context) -> Any:
    response = context.response
    by_topic: dict[str, list[Any]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                error_code = ErrorCode.none
                try:
                    _move(TopicPartition(topic.name, number), directory.path, context)
                except PenstockError as error:
                    error_code = code_of(error)
                told = response.results.partitions.make(partition_index=number, error_code=error_code)
                by_topic.setdefault(topic.name, []).append(told)
    results = tuple(response.results.make(topic_name=name, partitions=tuple(told)) for name, told in by_topic.items())
    return response.make(throttle_time=timedelta(), results=results)


def _move(key: TopicPartition, path: str, context: Context) -> None:
    services = context.services
    if not services.authoriser.allows(context.peer.principal, Action.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorisationError(f"{context.peer.principal} may not move replicas")
    if len(f"{key.topic}-{key.partition}") + _FUTURE_SUFFIX_CHARACTERS > _NAME_MAX:
        raise InvalidTopicError(f"the name of {key} is too long for a directory on its way")
    target = next((state for state in services.directories.directories if absolute(state.path) == path), None)
    if target is None:
        if path in map(absolute, services.directories.offline):
            raise StorageError(f"log directory {path} is offline")
        raise LogDirectoryError(f"{path} is none of this broker's log directories")
    target.health.check()
    partition = services.partitions.find(*key)
    if partition is None:
        missing = why_missing(services, *key)
        raise missing if isinstance(missing, StorageError) else ReplicaNotAvailableError(str(missing))
    partition.log.check_online()
    if services.directories.offline:
        raise StorageError("replicas are moved only while every log directory is online")
    services.moves.start(key, target)
