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

from penstock.base.errors import PenstockError, UnsupportedCompressionTypeError
from penstock.controller.errors import UnknownTopicIdError
from penstock.handlers.api import Context, Pending
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.errors import TopicAuthorisationError
from penstock.handlers.fetch_answers import answer_of, begin_session, is_enough
from penstock.handlers.follower_fetch import handle_follower_fetch
from penstock.handlers.missing import why_missing
from penstock.protocol.fetch import TOPIC_ID_FROM, FetchAnswer, FetchRequest
from penstock.records.batch import Codec
from penstock.replication.errors import NotLeaderOrFollowerError
from penstock.replication.fetch_sessions import Wanted
from penstock.replication.nearest import nearest
from penstock.replication.partition import Partition
from penstock.replication.read import ReadFrom, read_partitions
from penstock.replication.wait_for_bytes import AwaitedBytes, WaitForBytes
from penstock.storage.answers import Bound

READ_COMMITTED = 1
_ZSTD_FROM = 10
_FOLLOWERS_FROM = 11
"""Consumers that know of followers to read from."""
"""Older clients are refused a topic whose own codec is zstd, as in Kafka (KIP-110); what a producer chose is sent as is."""


def handle_fetch(request: FetchRequest, context: Context) -> FetchAnswer | Pending[FetchAnswer]:
    if request.replica_id >= 0:
        return handle_follower_fetch(request, context)
    try:
        session = begin_session(request, context)
    except PenstockError as error:
        return FetchAnswer(int(code_of(error)), 0, [])
    bound = Bound.LAST_STABLE if request.isolation_level == READ_COMMITTED else Bound.HIGH_WATERMARK
    bytes_max = min(request.bytes_max, context.services.settings.fetch_bytes_max)
    find = _source
    if request.rack_id and context.services.cluster is not None:
        find = partial(_near_source, request)
    asked = session.wanted
    sources = [find(wanted, context) for wanted in asked]
    outcomes = read_partitions(sources, bytes_max, bound)
    if is_enough(request, sources, outcomes):
        return answer_of(session, asked, sources, outcomes)
    awaited = [
        AwaitedBytes(source.partition, source.partition.leader_epoch, source.offset, source.bytes_max)
        for source in sources
        if source.partition is not None
    ]
    waits = context.services.fetch_waits
    pending: Pending[FetchAnswer] = Pending(lambda: waits.drop(operation))

    def answer() -> None:
        again = [find(wanted, context) for wanted in asked]
        pending.resolve(answer_of(session, asked, again, read_partitions(again, bytes_max, bound)))

    operation = WaitForBytes(awaited, request.bytes_min, bound, answer)
    waits.finish_or_wait(operation, operation.keys, request.wait_ms_max)
    return pending


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
