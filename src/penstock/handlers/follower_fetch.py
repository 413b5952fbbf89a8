"""Fetch (key 1) of a broker that follows: it reads to the log's end, and what it asks for says what it has.

A follower's session costs what changed: partitions that the request names, and those that changed since they were last told of, which the session
hears of as it listens to each of its partitions. Whatever that may miss is found by a look at all of them once in a waiting time.
A follower without a session, as one has that finds no room, asks for everything each time.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import UnknownTopicIdError
from penstock.handlers.api import Context, Pending
from penstock.handlers.brokers import is_broker
from penstock.handlers.error_map import code_of
from penstock.handlers.fetch_answers import answer_of, begin_session, is_enough, refused_partition
from penstock.handlers.missing import why_missing
from penstock.handlers.services import Services
from penstock.protocol.fetch import TOPIC_ID_FROM, FetchAnswer, FetchedTopic, FetchRequest
from penstock.replication.fetch_sessions import Cached, FetchContext, Session, Wanted
from penstock.replication.read import ReadFrom, ReadOutcome, read_partitions
from penstock.replication.wait_for_bytes import AwaitedBytes, WaitForBytes, WaitForChange
from penstock.storage.answers import Bound


class _Listening:
    """What a follower's session hears of its partitions, and the fetch of it that waits."""

    __slots__ = ("_keys", "_services", "_session", "swept_ms", "waiting")

    def __init__(self, session: Session, services: Services) -> None:
        self._session = session
        self._services = services
        self._keys: dict[TopicPartition, tuple[str | bytes, int]] = {}
        self.waiting: WaitForBytes | WaitForChange | None = None
        self.swept_ms = services.clock.monotonic_ms()
        session.listener = self

    def follow_session(self, request: FetchRequest, by_id: bool) -> None:
        """Listens to what the request named, and no more to what it forgot."""
        names = self._services.image.names_by_id
        for topic in request.topics:
            name = names.get(topic.topic_id, "") if by_id else topic.name
            for entry in topic.partitions:
                key = TopicPartition(name, entry.partition)
                if name and key not in self._keys:
                    self._keys[key] = (topic.topic_id if by_id else name, entry.partition)
                    self._services.fetch_waits.listen(key, self.changed)
        for gone in request.forgotten:
            name = names.get(gone.topic_id, "") if by_id else gone.name
            for number in gone.partitions:
                self._forget(TopicPartition(name, number))

    def _forget(self, key: TopicPartition) -> None:
        if self._keys.pop(key, None) is not None:
            self._services.fetch_waits.unlisten(key, self.changed)

    def end(self) -> None:
        for key in list(self._keys):
            self._forget(key)

    def changed(self, key: TopicPartition) -> None:
        """A partition changed: the waiting fetch looks at it, and at nothing else."""
        wanted = self._session.touch(self._keys[key])
        if wanted is None:
            self._forget(key)
            return
        operation = self.waiting
        if operation is None:
            return
        partition = self._services.partitions.find(*key)
        if partition is None or partition.leader_epoch != wanted.leader_epoch or not partition.is_leader:
            is_ready = True
        elif isinstance(operation, WaitForBytes):
            operation.also(AwaitedBytes(partition, wanted.leader_epoch, wanted.offset, wanted.bytes_max))
            is_ready = operation.is_ready(key)
        else:
            is_ready = partition.log.end_offset != wanted.offset
        if is_ready:
            self._services.fetch_waits.finish(operation)

    def sweep(self, request: FetchRequest, now_ms: int) -> None:
        """Looks at every partition: those that are as the follower knows them count as asked for now, the others as changed."""
        self.swept_ms = now_ms
        session = self._session
        assert session.changed is not None
        for key, cached in session.partitions.items():
            if key not in session.changed and not self._is_unchanged(request, cached, now_ms):
                session.changed[key] = None

    def _is_unchanged(self, request: FetchRequest, cached: Cached, now_ms: int) -> bool:
        wanted = cached.wanted
        partition = self._services.partitions.find(wanted.topic, wanted.partition)
        if partition is None or not partition.is_leader or partition.followers is None:
            return False
        log = partition.log
        if (
            partition.topic_id != wanted.topic_id
            or partition.leader_epoch != wanted.leader_epoch
            or request.replica_id not in partition.isr
            or wanted.offset != log.end_offset
            or cached.sent_high_watermark != log.high_watermark
            or cached.sent_log_start_offset != log.log_start_offset
        ):
            return False
        fetched = partition.fetched_by(
            request.replica_id, request.replica_epoch, wanted.offset, wanted.log_start_offset, now_ms
        )
        return fetched is not None and not fetched.high_watermark_moved and fetched.proposal is None


def handle_follower_fetch(request: FetchRequest, context: Context) -> FetchAnswer | Pending[FetchAnswer]:
    services = context.services
    if services.cluster is None or not is_broker(context):
        return _refuse(request, context)
    try:
        session = begin_session(request, context)
    except PenstockError as error:
        return FetchAnswer(int(code_of(error)), 0, [])
    listening = _listening(session, request, context)
    bytes_max = min(request.bytes_max, services.settings.fetch_bytes_max)
    asked = session.wanted
    sources = [_source(request, wanted, context) for wanted in asked]
    outcomes = read_partitions(sources, bytes_max, Bound.LOG_END)
    _follow(request, asked, sources, outcomes, services)
    is_idle = listening is not None and not sources and request.wait_ms_max > 0
    if not is_idle and is_enough(request, sources, outcomes):
        return answer_of(session, asked, sources, outcomes)
    waits = services.fetch_waits

    def dropped() -> None:
        waits.drop(operation)
        if listening is not None:
            listening.waiting = None

    pending: Pending[FetchAnswer] = Pending(dropped)

    def answer() -> None:
        if listening is not None:
            listening.waiting = None
        due = session.wanted
        again = [_source(request, wanted, context) for wanted in due]
        pending.resolve(answer_of(session, due, again, read_partitions(again, bytes_max, Bound.LOG_END)))

    operation: WaitForBytes | WaitForChange
    keys: list[TopicPartition] = []
    if listening is not None and request.bytes_min <= 1:
        operation = WaitForChange(answer)
    else:
        awaited = [
            AwaitedBytes(source.partition, source.partition.leader_epoch, source.offset, source.bytes_max)
            for source in sources
            if source.partition is not None
        ]
        operation = WaitForBytes(awaited, request.bytes_min, Bound.LOG_END, answer)
        keys = operation.keys if listening is None else []
    if not waits.finish_or_wait(operation, keys, request.wait_ms_max) and listening is not None:
        listening.waiting = operation
    return pending


def _listening(session: FetchContext, request: FetchRequest, context: Context) -> _Listening | None:
    """What listens for the request's session; None where it has none."""
    found = session.session
    if found is None:
        return None
    listening = found.listener
    if listening is None:
        listening = _Listening(found, context.services)
    assert isinstance(listening, _Listening)
    listening.follow_session(request, context.version >= TOPIC_ID_FROM)
    now_ms = context.services.clock.monotonic_ms()
    if now_ms - listening.swept_ms >= request.wait_ms_max:
        listening.sweep(request, now_ms)
    return listening


def _refuse(request: FetchRequest, context: Context) -> FetchAnswer:
    error = ErrorCode.not_leader_or_follower if is_broker(context) else ErrorCode.topic_authorization_failed
    topics = [
        FetchedTopic(
            topic.name, topic.topic_id, [refused_partition(entry.partition, int(error)) for entry in topic.partitions]
        )
        for topic in request.topics
    ]
    return FetchAnswer(0, 0, topics)


def _source(request: FetchRequest, wanted: Wanted, context: Context) -> ReadFrom:
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
    asked: list[Wanted],
    sources: list[ReadFrom],
    outcomes: list[ReadOutcome],
    services: Services,
) -> None:
    """What a follower asks for says what it has."""
    assert services.cluster is not None
    now_ms = services.clock.monotonic_ms()
    for wanted, source, outcome in zip(asked, sources, outcomes, strict=True):
        partition = source.partition
        if partition is None or outcome.error is not None or outcome.diverging is not None:
            continue
        follower = None if partition.followers is None else partition.followers.get(request.replica_id)
        has_raised_start = follower is not None and wanted.log_start_offset > follower.log_start_offset
        fetched = partition.fetched_by(
            request.replica_id, request.replica_epoch, wanted.offset, wanted.log_start_offset, now_ms
        )
        if fetched is None:
            continue
        if fetched.proposal is not None:
            services.cluster.isr.propose(partition, fetched.proposal)
        # Who reads before who wrote: the two are answered in this order.
        if fetched.high_watermark_moved:
            services.fetch_waits.changed(partition.topic_partition)
        if fetched.high_watermark_moved or has_raised_start:
            services.produce_waits.changed(partition.topic_partition)
