"""Fetch (key 1), versions 4-18, flexible from 12.

Behaviour: reads partitions within a budget of bytes, up to the high watermark or the last stable offset; waits until
    `min_bytes` can be read, a partition has an error, or the time is over. Sessions answer what changed only (KIP-227).
Versions: 4 isolation levels; 5 log start offset; 7 sessions; 9 leader epoch; 10 zstd; 11 racks; 12 flexible, last fetched epoch;
    13 topic ids; 15 replica state; 16 leaders' endpoints; 18 the follower's high watermark.
A broker of the cluster reads to the log's end: its fetch says what it has, and so moves the ISR and the high watermark. A
    consumer that names its rack may be sent to a replica there (KIP-392), and is served by followers from version 11 on.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError, UnsupportedCompressionTypeError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import UnknownTopicIdError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.brokers import is_broker
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.missing import why_missing
from penstock.protocol.fetch import (
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEndOffset,
    FetchAnswer,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
)
from penstock.records.batch import Codec
from penstock.replication.errors import NotLeaderOrFollowerError
from penstock.replication.fetch_sessions import FetchContext, Found, Wanted
from penstock.replication.nearest import nearest
from penstock.replication.partition import Partition
from penstock.replication.read import ReadFrom, ReadOutcome, read_partitions
from penstock.replication.wait_for_bytes import AwaitedBytes, WaitForBytes
from penstock.storage.answers import Bound

READ_COMMITTED = 1
_ZSTD_FROM = 10
_FOLLOWERS_FROM = 11
"""Consumers that know of followers to read from."""
"""Older clients are refused a topic whose own codec is zstd, as in Kafka (KIP-110); what a producer chose is sent as is."""


def handle_fetch(request: FetchRequest, context: Context) -> FetchAnswer | Pending[FetchAnswer]:
    is_replica = request.replica_id >= 0
    if is_replica and not _may_replicate(context):
        return _refuse_replica(request, context)
    try:
        session = _session(request, context)
    except PenstockError as error:
        return FetchAnswer(int(code_of(error)), 0, [])
    bound = Bound.LAST_STABLE if request.isolation_level == READ_COMMITTED else Bound.HIGH_WATERMARK
    bytes_max = min(request.bytes_max, context.services.settings.fetch_bytes_max)
    find = _source
    if is_replica:
        bound, find = Bound.LOG_END, partial(_replica_source, request)
    elif request.rack_id and context.services.cluster is not None:
        find = partial(_near_source, request)
    sources = [find(wanted, context) for wanted in session.wanted]
    outcomes = read_partitions(sources, bytes_max, bound)
    if is_replica:
        _follow(request, session, sources, outcomes, context)
    if _is_enough(request, sources, outcomes):
        return _answer(session, sources, outcomes)
    awaited = [
        AwaitedBytes(source.partition, source.partition.leader_epoch, source.offset, source.bytes_max)
        for source in sources
        if source.partition is not None
    ]
    waits = context.services.fetch_waits
    pending: Pending[FetchAnswer] = Pending(lambda: waits.drop(operation))

    def answer() -> None:
        again = [find(wanted, context) for wanted in session.wanted]
        pending.resolve(_answer(session, again, read_partitions(again, bytes_max, bound)))

    operation = WaitForBytes(awaited, request.bytes_min, bound, answer)
    waits.finish_or_wait(operation, operation.keys, request.wait_ms_max)
    return pending


def _may_replicate(context: Context) -> bool:
    return context.services.cluster is not None and is_broker(context)


def _refuse_replica(request: FetchRequest, context: Context) -> FetchAnswer:
    error = ErrorCode.not_leader_or_follower if is_broker(context) else ErrorCode.topic_authorization_failed
    topics = [
        FetchedTopic(topic.name, topic.topic_id, [_refused(entry.partition, int(error)) for entry in topic.partitions])
        for topic in request.topics
    ]
    return FetchAnswer(0, 0, topics)


def _session(request: FetchRequest, context: Context) -> FetchContext:
    by_id = context.version >= TOPIC_ID_FROM
    names = context.services.image.names_by_id
    wanted = []
    for topic in request.topics:
        name = names.get(topic.topic_id, "") if by_id else topic.name
        for entry in topic.partitions:
            partition, leader_epoch, offset, last_epoch, start, bytes_max, _ = entry
            wanted.append(Wanted(name, topic.topic_id, partition, offset, bytes_max, leader_epoch, last_epoch, start))
    forgotten: list[TopicPartition | tuple[bytes, int]] = []
    for gone in request.forgotten:
        forgotten += (
            (gone.topic_id, number) if by_id else TopicPartition(gone.name, number) for number in gone.partitions
        )
    return context.services.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        uses_topic_ids=by_id,
        is_privileged=False,
    )


def _source(wanted: Wanted, context: Context) -> ReadFrom:
    services = context.services
    name = wanted.topic
    refusal: PenstockError | None = None
    if not name:
        name = services.image.names_by_id.get(wanted.topic_id, "")
    partition: Partition | None = None
    if not name and context.version >= TOPIC_ID_FROM:
        refusal = UnknownTopicIdError("no topic has this id")
    elif not services.authoriser.allows(context.peer.principal, Action.READ, Resource.TOPIC, name):
        refusal = TopicAuthorisationError(f"{context.peer.principal} may not read topic {name}")
    else:
        partition = services.partitions.find(name, wanted.partition)
        if partition is None:
            refusal = why_missing(services, name, wanted.partition)
        elif context.version >= TOPIC_ID_FROM and partition.topic_id != wanted.topic_id:
            # The name of a session's partition now belongs to another topic.
            partition, refusal = None, UnknownTopicIdError("no topic has this id")
        elif not partition.is_leader and context.version < _FOLLOWERS_FROM:
            partition, refusal = None, NotLeaderOrFollowerError(f"{name}-{wanted.partition} is led elsewhere")
        elif context.version < _ZSTD_FROM and partition.log.config.codec is Codec.ZSTD:
            partition, refusal = None, UnsupportedCompressionTypeError("zstd needs Fetch version 10")
    return ReadFrom(partition, wanted.offset, wanted.bytes_max, wanted.leader_epoch, refusal, wanted.last_fetched_epoch)


def _replica_source(request: FetchRequest, wanted: Wanted, context: Context) -> ReadFrom:
    """Where a follower reads: only what it is assigned, and only from the leader."""
    services = context.services
    name = services.image.names_by_id.get(wanted.topic_id, "") if context.version >= TOPIC_ID_FROM else wanted.topic
    partition, refusal = services.partitions.find(name, wanted.partition), None
    try:
        if partition is None or (context.version >= TOPIC_ID_FROM and partition.topic_id != wanted.topic_id):
            raise (
                UnknownTopicIdError("no topic has this id")
                if not name
                else why_missing(services, name, wanted.partition)
            )
        partition.check_follower(request.replica_id, wanted.leader_epoch)
    except PenstockError as error:
        partition, refusal = None, error
    return ReadFrom(partition, wanted.offset, wanted.bytes_max, wanted.leader_epoch, refusal, wanted.last_fetched_epoch)


def _follow(
    request: FetchRequest,
    session: FetchContext,
    sources: list[ReadFrom],
    outcomes: list[ReadOutcome],
    context: Context,
) -> None:
    """What a follower asks for says what it has."""
    services = context.services
    assert services.cluster is not None
    now_ms = services.clock.monotonic_ms()
    for wanted, source, outcome in zip(session.wanted, sources, outcomes, strict=True):
        partition = source.partition
        if partition is None or outcome.error is not None or outcome.diverging is not None:
            continue
        fetched = partition.fetched_by(
            request.replica_id, request.replica_epoch, wanted.offset, wanted.log_start_offset, now_ms
        )
        if fetched is None:
            continue
        if fetched.proposal is not None:
            services.cluster.isr.propose(partition, fetched.proposal)
        if fetched.high_watermark_moved:
            services.produce_waits.changed(partition.topic_partition)
            services.fetch_waits.changed(partition.topic_partition)


def _near_source(request: FetchRequest, wanted: Wanted, context: Context) -> ReadFrom:
    """Where a consumer that names its rack reads: here, or nowhere, if another replica is nearer."""
    source = _source(wanted, context)
    services = context.services
    assert services.cluster is not None
    if source.partition is None or not services.cluster.reads_from_nearest:
        return source
    racks = {broker_id: broker.rack for broker_id, broker in services.image.brokers.items()}
    preferred = nearest(source.partition, racks, request.rack_id, wanted.offset)
    return source if preferred is None else source._replace(preferred=preferred)


def _is_enough(request: FetchRequest, sources: list[ReadFrom], outcomes: list[ReadOutcome]) -> bool:
    if not sources or request.wait_ms_max <= 0:
        return True
    total = 0
    for outcome in outcomes:
        if outcome.error is not None or outcome.diverging is not None or outcome.preferred >= 0:
            return True
        total += outcome.bytes_read
    return total >= request.bytes_min


def _refused(partition: int, code: int) -> FetchedPartition:
    """Of a partition that there is nothing to read from: Kafka sends such an empty list, and null for other errors."""
    return FetchedPartition(partition, code, -1, -1, -1, (), -1, b"")


def _fetched(partition: int, source: ReadFrom, outcome: ReadOutcome) -> FetchedPartition:
    result = outcome.result
    if result is None:
        assert outcome.error is not None
        refused = _refused(partition, int(code_of(outcome.error)))
        return refused if source.partition is None else refused._replace(aborted=None)
    aborted = None
    if result.aborted is not None:
        aborted = tuple(AbortedTransaction(entry.producer_id, entry.first_offset) for entry in result.aborted)
    diverging = None
    if outcome.diverging is not None:
        diverging = EpochEndOffset(outcome.diverging.epoch, outcome.diverging.end_offset)
    return FetchedPartition(
        partition,
        0,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        aborted,
        outcome.preferred,
        b"" if result.slice is None else result.slice,
        diverging,
    )


def _count(sources: list[ReadFrom], outcomes: list[ReadOutcome]) -> None:
    for source, outcome in zip(sources, outcomes, strict=True):
        if source.partition is None:
            continue
        traffic = source.partition.traffic
        traffic.fetch_requests += 1
        traffic.bytes_out += outcome.bytes_read
        if outcome.error is not None and code_of(outcome.error) == ErrorCode.unknown_server_error:
            traffic.failed_fetch_requests += 1


def _answer(session: FetchContext, sources: list[ReadFrom], outcomes: list[ReadOutcome]) -> FetchAnswer:
    _count(sources, outcomes)
    fetched = [
        _fetched(wanted.partition, source, outcome)
        for wanted, source, outcome in zip(session.wanted, sources, outcomes, strict=True)
    ]
    found = [
        Found(
            one.high_watermark,
            one.log_start_offset,
            one.error_code != 0
            or outcome.bytes_read > 0
            or one.diverging_epoch is not None
            or one.preferred_read_replica >= 0,
            outcome.bytes_read > 0,
        )
        for one, outcome in zip(fetched, outcomes, strict=True)
    ]
    topics: list[FetchedTopic] = []
    for wanted, one, selected in zip(session.wanted, fetched, session.select(found), strict=True):
        if not selected:
            continue
        # An answer groups by neighbours: a session's order may name a topic twice, which clients accept.
        if not topics or (topics[-1].name, topics[-1].topic_id) != (wanted.topic, wanted.topic_id):
            topics.append(FetchedTopic(wanted.topic, wanted.topic_id, []))
        topics[-1].partitions.append(one)
    return FetchAnswer(0, session.session_id, topics)
