"""What a Fetch request asks with its session, and what it is answered of each partition."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base.ids import TopicPartition
from penstock.handlers.api import Context
from penstock.handlers.error_map import code_of
from penstock.protocol.fetch import (
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEndOffset,
    FetchAnswer,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
)
from penstock.replication.fetch_sessions import NO_FOLLOWER, FetchContext, Found, Wanted
from penstock.replication.read import ReadFrom, ReadOutcome


def begin_session(request: FetchRequest, context: Context) -> FetchContext:
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
        follower_id=request.replica_id if request.replica_id >= 0 else NO_FOLLOWER,
    )


def is_enough(request: FetchRequest, sources: list[ReadFrom], outcomes: list[ReadOutcome]) -> bool:
    if not sources or request.wait_ms_max <= 0:
        return True
    total = 0
    for outcome in outcomes:
        if outcome.error is not None or outcome.diverging is not None or outcome.preferred >= 0:
            return True
        total += outcome.bytes_read
    return total >= request.bytes_min


def refused_partition(partition: int, code: int) -> FetchedPartition:
    """Of a partition that there is nothing to read from: Kafka sends such an empty list, and null for other errors."""
    return FetchedPartition(partition, code, -1, -1, -1, (), -1, b"")


def _fetched(partition: int, source: ReadFrom, outcome: ReadOutcome) -> FetchedPartition:
    result = outcome.result
    if result is None:
        assert outcome.error is not None
        refused = refused_partition(partition, int(code_of(outcome.error)))
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


def answer_of(
    session: FetchContext, asked: list[Wanted], sources: list[ReadFrom], outcomes: list[ReadOutcome]
) -> FetchAnswer:
    _count(sources, outcomes)
    fetched = [
        _fetched(wanted.partition, source, outcome)
        for wanted, source, outcome in zip(asked, sources, outcomes, strict=True)
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
            _is_done(source, outcome),
        )
        for one, source, outcome in zip(fetched, sources, outcomes, strict=True)
    ]
    topics: list[FetchedTopic] = []
    for wanted, one, selected in zip(asked, fetched, session.select(asked, found), strict=True):
        if not selected:
            continue
        # An answer groups by neighbours: a session's order may name a topic twice, which clients accept.
        if not topics or (topics[-1].name, topics[-1].topic_id) != (wanted.topic, wanted.topic_id):
            topics.append(FetchedTopic(wanted.topic, wanted.topic_id, []))
        topics[-1].partitions.append(one)
    return FetchAnswer(0, session.session_id, topics)


def _is_done(source: ReadFrom, outcome: ReadOutcome) -> bool:
    """Whether a follower that was told this asks anew, or has everything: what did not fit into the answer is not done."""
    if source.partition is None or outcome.error is not None or outcome.diverging is not None:
        return False
    return outcome.bytes_read > 0 or source.offset >= source.partition.log.end_offset
