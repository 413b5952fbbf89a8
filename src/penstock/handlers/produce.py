"""Produce (key 0), versions 3-13, flexible from 9; advertised from 0, as clients test for that.

Behaviour: appends each partition's batch to its leader; answers at once for acks 0 and 1, for acks -1 when the high
    watermark passes the batch or the timeout ends. Errors are per partition; acks 0 has no answer, and an error closes
    the connection.
Versions: 3 batches v2; 5 log start offset; 7 zstd; 8 record errors (KIP-467); 9 flexible; 10 current leader (KIP-951);
    12 transactions V2; 13 topic ids.
Differs from Kafka: the client id `__admin_client` may not write internal topics either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import (
    InvalidRecordError,
    MessageTooLargeError,
    PenstockError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from penstock.base.files import ReadableBuffer
from penstock.base.ids import InvalidTopicError
from penstock.controller.errors import UnknownTopicIdError
from penstock.handlers.api import NO_ANSWER, CloseConnectionError, Context, Pending, Services, _NoAnswer
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.missing import why_missing
from penstock.handlers.verification import verify_appends
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.protocol.produce import (
    TOPIC_ID_FROM,
    ProduceAnswer,
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    RecordError,
)
from penstock.records.batch import TRANSACTIONAL_BIT
from penstock.replication.append import AppendOutcome, AppendTo, append_partitions
from penstock.replication.partition import ACKS_ALL
from penstock.replication.traffic import Traffic
from penstock.replication.wait_for_acks import AwaitedAppend, WaitForAcks

_ZSTD = 4
_ZSTD_FROM = 7


def handle_produce(request: ProduceRequest, context: Context) -> Any:
    acks = request.acks
    if acks not in (-1, 0, 1):
        return _refuse_all(request, int(ErrorCode.invalid_required_acks))
    in_transaction = _has_transactional(request.topics)
    if in_transaction and not _may_use_transactional_id(request.transactional_id, context):
        if acks == 0:  # an answer would be taken for that of the client's next request
            raise CloseConnectionError("a transactional id that may not be used")
        return _refuse_all(request, int(ErrorCode.transactional_id_authorization_failed))
    wanted: list[AppendTo] = []
    for topic in request.topics:
        _add_appends(topic, context, wanted)
    if in_transaction:
        return _append_verified(request, wanted, context)
    return _append(request, wanted, context)


def _has_transactional(topics: list[ProduceTopic]) -> bool:
    for _, _, partitions in topics:
        for _, records in partitions:
            if records is not None and len(records) > 22 and records[22] & TRANSACTIONAL_BIT:
                return True
    return False


def _may_use_transactional_id(transactional_id: str | None, context: Context) -> bool:
    """Records of a transaction need an id that may be used: the flag alone is no way around (CVE-2018-17196)."""
    return transactional_id is not None and context.services.authoriser.allows(
        context.peer.principal, Action.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
    )


def _append(
    request: ProduceRequest, wanted: list[AppendTo], context: Context
) -> ProduceAnswer | Pending[ProduceAnswer] | Pending[ProduceAnswer | _NoAnswer] | _NoAnswer:
    must_wait = context.services.heavy_appends.must_wait
    for append in wanted:
        if append.partition is not None and must_wait(append.partition, append.records):
            return _append_later(request, wanted, context)
    outcomes = append_partitions(wanted, request.acks)
    if _tell(wanted, outcomes, request.acks, context.services):
        return _wait(request, wanted, outcomes, context)
    return _answer_at_once(request, outcomes)


def _append_verified(request: ProduceRequest, wanted: list[AppendTo], context: Context) -> Any:
    """The coordinator has its say first: at once where it is here, and its record need not be waited for. Until then nothing behind
    this request is looked at, as a partition whose transaction is open already would take the next batch before this one's."""
    assert request.transactional_id is not None
    pending: Pending[Any] | None = None
    ready: list[list[AppendTo]] = []

    def verified(checked: list[AppendTo]) -> None:
        if pending is None:
            ready.append(checked)
        else:
            _resolve(pending, partial(_append, request, checked, context), context)

    verify_appends(context.services, request.transactional_id, wanted, context.version, verified)
    if ready:
        return _append(request, ready[0], context)
    pending = Pending(is_held=True)
    return pending


def _resolve(pending: Pending[Any], append: Callable[[], Any], context: Context) -> None:
    """Ends a wait with what an append gives: its answer, none, a closed connection, or another wait, given up with the first."""
    try:
        answer = append()
    except CloseConnectionError as error:
        context.peer.close(str(error))
        answer = NO_ANSWER
    if isinstance(answer, Pending):
        pending.follow(answer)
        pending.release()
    else:
        pending.resolve(answer)


def _answer_at_once(request: ProduceRequest, outcomes: list[AppendOutcome]) -> ProduceAnswer | _NoAnswer:
    if request.acks == 0:
        if any(outcome.error is not None for outcome in outcomes):
            raise CloseConnectionError("a record without acknowledgement could not be written")
        return NO_ANSWER
    return produce_answer(request.topics, outcomes, {}, frozenset())


def _append_later(
    request: ProduceRequest, wanted: list[AppendTo], context: Context
) -> Pending[ProduceAnswer | _NoAnswer]:
    """Some of it is recompressed on a thread first, or stands behind such: each partition keeps its order.

    What is appended at once is told of at once. By the end it may be lost with its leader: whether the request has to wait is
    known from when it was appended, and a wait looks at who led then.
    """
    services = context.services
    heavy = services.heavy_appends
    acks = request.acks
    pending: Pending[ProduceAnswer | _NoAnswer] = Pending()
    late = [append.partition is not None and heavy.must_wait(append.partition, append.records) for append in wanted]
    light = [append for append, waits in zip(wanted, late, strict=True) if not waits]
    at_once = append_partitions(light, acks)
    must_wait = _tell(light, at_once, acks, services)
    ready = iter(at_once)
    outcomes = [None if waits else next(ready) for waits in late]

    def answer() -> ProduceAnswer | Pending[ProduceAnswer] | _NoAnswer:
        every = [one for one in outcomes if one is not None]
        return _wait(request, wanted, every, context) if must_wait else _answer_at_once(request, every)

    def done(number: int, outcome: AppendOutcome) -> None:
        nonlocal must_wait
        outcomes[number] = outcome
        must_wait = _tell([wanted[number]], [outcome], acks, services) or must_wait
        if None not in outcomes:
            _resolve(pending, answer, context)

    for number, (append, waits) in enumerate(zip(wanted, late, strict=True)):
        if waits:
            assert append.partition is not None
            heavy.append(append.partition, append.records, acks, partial(done, number))
    return pending


def _tell(wanted: list[AppendTo], outcomes: list[AppendOutcome], acks: int, services: Services) -> bool:
    """Lets those know who wait for these partitions. Returns whether this request has to wait itself."""
    must_wait = False
    for number, (appended, error) in enumerate(outcomes):
        partition, records, _ = wanted[number]
        if partition is None:
            continue
        traffic = partition.traffic
        traffic.produce_requests += 1
        if appended is None:
            _count_refusal(traffic, records, error)
            continue
        traffic.bytes_in += len(records)
        traffic.messages_in += appended.end_offset - appended.base_offset
        services.fetch_waits.changed(partition.topic_partition)
        if appended.high_watermark_moved:
            services.produce_waits.changed(partition.topic_partition)
        if acks == ACKS_ALL and partition.log.high_watermark < appended.end_offset:
            must_wait = True  # also where it moved: to what members had before, perhaps
        if appended.flush_due:
            services.flushes.ask(partition)
            must_wait = must_wait or acks != 0
    return must_wait


def _count_refusal(traffic: Traffic, records: ReadableBuffer, error: PenstockError | None) -> None:
    if isinstance(error, MessageTooLargeError | RecordListTooLargeError):
        traffic.bytes_rejected += len(records)
    elif error is not None and code_of(error) == ErrorCode.unknown_server_error:
        traffic.failed_produce_requests += 1


def _add_appends(topic: ProduceTopic, context: Context, appends: list[AppendTo]) -> None:
    """Authorised? existing? well-formed? In this order, so that nothing is learnt of a topic one may not write."""
    services = context.services
    name = topic.name
    refusal: PenstockError | None = None
    if context.version >= TOPIC_ID_FROM:
        known = services.image.names_by_id.get(topic.topic_id)
        if known is None:
            refusal = UnknownTopicIdError("no topic has this id")
        else:
            name = known
    if refusal is None and not services.authoriser.allows(context.peer.principal, Action.WRITE, Resource.TOPIC, name):
        refusal = TopicAuthorisationError(f"{context.peer.principal} may not write topic {name}")
    if refusal is None and name in INTERNAL_TOPICS:
        refusal = InvalidTopicError(f"{name} is written by the broker only")
    if refusal is not None:
        appends += (AppendTo(None, b"", refusal) for _ in topic.partitions)
        return
    for entry in topic.partitions:
        partition = services.partitions.find(name, entry.partition)
        if partition is None:
            appends.append(AppendTo(None, b"", why_missing(services, name, entry.partition)))
            continue
        records = entry.records
        if not records:
            appends.append(AppendTo(None, b"", InvalidRecordError("a produced partition has one batch, not none")))
        elif context.version < _ZSTD_FROM and len(records) > 22 and records[22] & 7 == _ZSTD:
            appends.append(AppendTo(None, b"", UnsupportedCompressionTypeError("zstd needs Produce version 7")))
        else:
            appends.append(AppendTo(partition, records))


def _wait(
    request: ProduceRequest, wanted: Sequence[AppendTo], outcomes: list[AppendOutcome], context: Context
) -> ProduceAnswer | Pending[ProduceAnswer]:
    # Without the records: a request's bytes are let go while it waits.
    topics = [
        topic._replace(partitions=[entry._replace(records=None) for entry in topic.partitions])
        for topic in request.topics
    ]
    acks = request.acks
    keys = [None if append.partition is None else append.partition.topic_partition for append in wanted]
    awaited = [
        AwaitedAppend(append.partition, outcome.appended.leader_epoch, outcome.appended.end_offset, acks)
        for append, outcome in zip(wanted, outcomes, strict=True)
        if append.partition is not None and outcome.appended is not None
    ]
    waits = context.services.produce_waits
    pending: Pending[ProduceAnswer] = Pending(lambda: waits.drop(operation))

    def answer(ended: WaitForAcks) -> None:
        late = frozenset(number for number, key in enumerate(keys) if key in ended.timed_out)
        failed = {
            number: ended.errors[key] for number, key in enumerate(keys) if key is not None and key in ended.errors
        }
        pending.resolve(produce_answer(topics, outcomes, failed, late))

    operation = WaitForAcks(awaited, answer)
    waits.finish_or_wait(operation, operation.keys, request.timeout_ms)
    return pending


def produce_answer(
    asked: list[ProduceTopic], outcomes: list[AppendOutcome], failed: dict[int, PenstockError], late: frozenset[int]
) -> ProduceAnswer:
    topics = []
    number = 0
    for name, topic_id, entries in asked:
        produced = []
        for partition, _ in entries:
            appended, error = outcomes[number]
            error = failed.get(number, error) if failed else error
            if error is not None:
                produced.append(_refused(partition, error))
            elif number in late:
                produced.append(ProducedPartition(partition, int(ErrorCode.request_timed_out), -1, -1, -1))
            else:
                assert appended is not None
                produced.append(
                    ProducedPartition(
                        partition, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
                    )
                )
            number += 1
        topics.append(ProducedTopic(name, topic_id, produced))
    return ProduceAnswer(topics)


def _refused(partition: int, error: PenstockError) -> ProducedPartition:
    if isinstance(error, UnsupportedForMessageFormatError):
        error = InvalidRecordError(str(error))
    record_errors: tuple[RecordError, ...] = ()
    log_start_offset = -1
    if isinstance(error, InvalidRecordError):
        record_errors = tuple(RecordError(index, message) for index, message in error.record_errors)
        log_start_offset = error.log_start_offset
    return ProducedPartition(partition, int(code_of(error)), -1, -1, log_start_offset, record_errors, str(error))


def _refuse_all(request: ProduceRequest, code: int) -> ProduceAnswer:
    def refused(entry: ProducePartition) -> ProducedPartition:
        return ProducedPartition(entry.partition, code, -1, -1, -1)

    return ProduceAnswer(
        [ProducedTopic(topic.name, topic.topic_id, list(map(refused, topic.partitions))) for topic in request.topics]
    )
