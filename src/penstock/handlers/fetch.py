"""Fetch (key 1), versions 4-18, flexible from 12.

Behaviour: reads partitions within a budget of bytes, up to the high watermark or the last stable offset; waits until
    `min_bytes` can be read, a partition has an error, or the time is over. Sessions answer what changed only (KIP-227).
Versions: 4 isolation levels; 5 log start offset; 7 sessions; 9 leader epoch; 10 zstd; 11 racks; 12 flexible, last fetched epoch;
    13 topic ids; 15 replica state; 16 leaders' endpoints; 18 the follower's high watermark.
Differs from Kafka: replicas do not fetch yet, and a client that claims to be one is refused.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError, UnsupportedCompressionTypeError
from penstock.base.ids import TopicPartition
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
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
from penstock.replication.errors import UnknownTopicIdError
from penstock.replication.fetch_sessions import FetchContext, Found, Wanted
from penstock.replication.partition import Partition
from penstock.replication.read import ReadFrom, ReadOutcome, read_partitions
from penstock.replication.wait_for_bytes import AwaitedBytes, WaitForBytes
from penstock.storage.partition_log import Bound

READ_COMMITTED = 1
_ZSTD_FROM = 10
"""Older clients are refused a topic whose own codec is zstd, as in Kafka (KIP-110); what a producer chose is sent as is."""


def handle_fetch(request: FetchRequest, context: Context) -> FetchAnswer | Pending[FetchAnswer]:
    if request.replica_id >= 0:
        return _refuse_replica(request, context)
    try:
        session = _session(request, context)
    except PenstockError as error:
        return FetchAnswer(int(code_of(error)), 0, [])
    bound = Bound.LAST_STABLE if request.isolation_level == READ_COMMITTED else Bound.HIGH_WATERMARK
    bytes_max = min(request.bytes_max, context.services.settings.fetch_bytes_max)
    sources = [_source(wanted, context) for wanted in session.wanted]
    outcomes = read_partitions(sources, bytes_max, bound)
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
        again = [_source(wanted, context) for wanted in session.wanted]
        pending.resolve(_answer(session, again, read_partitions(again, bytes_max, bound)))

    operation = WaitForBytes(awaited, request.bytes_min, bound, answer)
    waits.finish_or_wait(operation, operation.keys, request.wait_ms_max)
    return pending


def _refuse_replica(request: FetchRequest, context: Context) -> FetchAnswer:
    """A client that says it is a replica needs to be one (CVE-2018-1288)."""
    allowed = context.services.authoriser.allows(
        context.peer.principal, Action.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME
    )
    error = ErrorCode.not_leader_or_follower if allowed else ErrorCode.topic_authorization_failed
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
        elif context.version < _ZSTD_FROM and partition.log.config.codec is Codec.ZSTD:
            partition, refusal = None, UnsupportedCompressionTypeError("zstd needs Fetch version 10")
    return ReadFrom(partition, wanted.offset, wanted.bytes_max, wanted.leader_epoch, refusal, wanted.last_fetched_epoch)


def _is_enough(request: FetchRequest, sources: list[ReadFrom], outcomes: list[ReadOutcome]) -> bool:
    if not sources or request.wait_ms_max <= 0:
        return True
    total = 0
    for outcome in outcomes:
        if outcome.error is not None or outcome.diverging is not None:
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
        -1,
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
            one.error_code != 0 or outcome.bytes_read > 0 or one.diverging_epoch is not None,
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
