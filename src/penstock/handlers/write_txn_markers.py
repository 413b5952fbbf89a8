"""WriteTxnMarkers (key 27), versions 1-2, flexible from 1.

Behaviour: writes the ends of transactions to partitions that this broker leads; from coordinators, and from an operator who
    aborts a transaction that hangs (CLUSTER_ACTION, or ALTER of the cluster). The answer waits for every marker.
Versions: 1 flexible; 2 the transactions protocol of the end (KIP-1228).
Differs from Kafka: a marker that names no producer is INVALID_REQUEST instead of UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import InvalidRequestError
from penstock.drivers.markers import Marker
from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource
from penstock.handlers.error_map import code_of
from penstock.handlers.missing import why_missing
from penstock.handlers.transactions import at_once_or_later

Codes = dict[tuple[int, TopicPartition], ErrorCode]


def handle_write_txn_markers(request: Any, context: Context) -> Any:
    allows = context.services.authoriser.allows
    actions = (Action.ALTER, Action.CLUSTER_ACTION)
    places = [
        (number, TopicPartition(str(topic.name), partition))
        for number, marker in enumerate(request.markers)
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
    if not any(allows(context.peer.principal, action, Resource.CLUSTER, CLUSTER_NAME) for action in actions):
        return _answer(request, dict.fromkeys(places, ErrorCode.cluster_authorization_failed), context)
    if not places:
        return _answer(request, {}, context)
    return at_once_or_later(partial(_write, request, places, context))


def _write(
    request: Any, places: list[tuple[int, TopicPartition]], context: Context, done: Callable[[Any], None]
) -> None:
    services = context.services
    codes: Codes = {}
    remaining = len(places)

    def written(place: tuple[int, TopicPartition], error: PenstockError | None) -> None:
        nonlocal remaining
        codes[place] = ErrorCode.none if error is None else code_of(error)
        remaining -= 1
        if not remaining:
            done(_answer(request, codes, context))

    for place in places:
        number, topic_partition = place
        if services.partitions.find(*topic_partition) is None:
            written(place, why_missing(services, *topic_partition))
            continue
        entry = request.markers[number]
        if entry.producer_id < 0 or entry.producer_epoch < 0:
            written(place, InvalidRequestError("a marker names a producer and its epoch"))
            continue
        marker = Marker(
            entry.producer_id,
            entry.producer_epoch,
            entry.transaction_result,
            entry.coordinator_epoch,
            getattr(entry, "transaction_version", 0),
        )
        services.markers.write(topic_partition, marker, partial(written, place))


def _answer(request: Any, codes: Mapping[tuple[int, TopicPartition], ErrorCode], context: Context) -> Any:
    shape = context.response.markers
    markers = []
    for number, entry in enumerate(request.markers):
        topics = tuple(
            shape.topics.make(
                name=topic.name,
                partitions=tuple(
                    shape.topics.partitions.make(
                        partition_index=partition,
                        error_code=codes[number, TopicPartition(str(topic.name), partition)],
                    )
                    for partition in topic.partition_indexes
                ),
            )
            for topic in entry.topics
        )
        markers.append(shape.make(producer_id=entry.producer_id, topics=topics))
    return context.response.make(markers=tuple(markers))
