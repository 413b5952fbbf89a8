"""From the controller's view to what each broker is told of it, one request of each kind for a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from penstock.base.ids import TopicPartition
from penstock.controller.brokers import every_key, keys_on
from penstock.controller.cluster import Cluster, eligible_of
from penstock.controller.peer_requests import (
    EPOCH_DURING_DELETION,
    LEADER_DURING_DELETION,
    LeaderAndIsr,
    LiveLeader,
    PartitionState,
    PeerRequests,
    RequestType,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)


def tell_changes(
    cluster: Cluster, keys: Iterable[TopicPartition], *, new: Collection[TopicPartition] = ()
) -> PeerRequests:
    """Roles for the replicas of these partitions, and news of them for every broker."""
    states = _states(cluster, keys, new)
    if not states:
        return PeerRequests()
    return PeerRequests(
        leader_and_isr=_roles(cluster, states, cluster.image.brokers, RequestType.INCREMENTAL),
        update_metadata=_news(cluster, states, cluster.image.brokers),
    )


def tell_everything(
    cluster: Cluster, broker_ids: Collection[int], *, new: Collection[TopicPartition] = ()
) -> PeerRequests:
    """All that these brokers must know, as if they knew nothing. Logs of topics that are going are named too: they are no strays."""
    states = _states(cluster, every_key(cluster), new)
    going = [_going(state) for name in sorted(cluster.image.deleting) for state in _states_of(cluster, name)]
    return PeerRequests(
        leader_and_isr=_roles(cluster, [*states, *going], broker_ids, RequestType.FULL),
        update_metadata=_news(cluster, states, broker_ids, RequestType.FULL),
    )


def tell_news(cluster: Cluster, keys: Iterable[TopicPartition]) -> PeerRequests:
    """Partitions whose ISR changed and nothing else: whoever leads them asked for it."""
    states = _states(cluster, keys)
    return PeerRequests(update_metadata=_news(cluster, states, cluster.image.brokers)) if states else PeerRequests()


def tell_return(cluster: Cluster, broker_ids: Collection[int], changed: Collection[TopicPartition]) -> PeerRequests:
    """Partitions of brokers that are back, but those that changed and were told of: their replicas there are not offline any more."""
    return tell_news(cluster, [key for key in keys_on(cluster, broker_ids) if key not in changed])


def tell_brokers(cluster: Cluster) -> PeerRequests:
    """Only who is alive."""
    return PeerRequests(update_metadata=_news(cluster, [], cluster.image.brokers))


def tell_deletion(cluster: Cluster, topic: str) -> PeerRequests:
    """The topic is going: nobody leads it any more, and its logs go."""
    found = cluster.image.topics.get(topic)
    if found is None:
        return PeerRequests()
    stops: dict[int, list[StoppedPartition]] = {}
    states = [_going(state) for state in _states_of(cluster, topic)]
    for number, partition in found.partitions.items():
        for broker_id in partition.replicas:
            if broker_id in cluster.image.brokers:
                stop = StoppedPartition(topic=topic, partition=number, leader_epoch=EPOCH_DURING_DELETION, delete=True)
                stops.setdefault(broker_id, []).append(stop)
    return PeerRequests(
        update_metadata=_news(cluster, states, cluster.image.brokers), stop_replica=_stops(cluster, stops)
    )


def tell_stop(cluster: Cluster, broker_id: int, keys: Iterable[TopicPartition]) -> PeerRequests:
    """A broker about to stop need not follow these any more; its logs stay."""
    stopped = [
        StoppedPartition(topic=key.topic, partition=key.partition, leader_epoch=found.leader_epoch, delete=False)
        for key in keys
        if (found := cluster.partition(key)) is not None and found.leader != broker_id
    ]
    if not stopped or broker_id not in cluster.image.brokers:
        return PeerRequests()
    return PeerRequests(stop_replica=_stops(cluster, {broker_id: stopped}))


def _states(
    cluster: Cluster, keys: Iterable[TopicPartition], new: Collection[TopicPartition] = ()
) -> list[PartitionState]:
    """But of topics that are going: who is told of one after its log went makes another, and nobody asks whether that is gone."""
    deleting = cluster.image.deleting
    found = (_state(cluster, key, is_new=key in new) for key in keys if key.topic not in deleting)
    return [state for state in found if state is not None]


def _state(cluster: Cluster, key: TopicPartition, *, is_new: bool = False) -> PartitionState | None:
    topic, partition = cluster.image.topics.get(key.topic), cluster.partition(key)
    if topic is None or partition is None or partition.leader_epoch < 0:
        return None
    return PartitionState(
        topic=key.topic,
        topic_id=topic.topic_id,
        partition=key.partition,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.state_version,
        replicas=partition.replicas,
        has_eligible=bool(eligible_of(partition)),
        offline_replicas=tuple(one for one in partition.replicas if not cluster.is_alive(key, one)),
        is_new=is_new,
    )


def _states_of(cluster: Cluster, topic: str) -> list[PartitionState]:
    found = cluster.image.topics.get(topic)
    numbers = [] if found is None else found.partitions
    return [state for number in numbers if (state := _state(cluster, TopicPartition(topic, number))) is not None]


def _going(state: PartitionState) -> PartitionState:
    return replace(state, leader=LEADER_DURING_DELETION, is_new=False)


def _roles(
    cluster: Cluster, states: list[PartitionState], broker_ids: Collection[int], kind: RequestType
) -> dict[int, LeaderAndIsr]:
    told: dict[int, list[PartitionState]] = {}
    if kind is RequestType.FULL:  # a broker that should hold nothing is told so
        told = {broker_id: [] for broker_id in broker_ids if broker_id in cluster.image.brokers}
    for state in states:
        for broker_id in state.replicas:
            if broker_id in broker_ids and broker_id in cluster.image.brokers:
                told.setdefault(broker_id, []).append(state)
    return {
        broker_id: LeaderAndIsr(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=cluster.image.brokers[broker_id].epoch,
            type=kind,
            partitions=tuple(partitions),
            live_leaders=_live_leaders(cluster, {state.leader for state in partitions}),
        )
        for broker_id, partitions in told.items()
    }


def _live_leaders(cluster: Cluster, leaders: set[int]) -> tuple[LiveLeader, ...]:
    return tuple(
        LiveLeader(broker_id=leader, host=endpoint.host, port=endpoint.port)
        for leader in sorted(leaders)
        if (broker := cluster.image.brokers.get(leader)) is not None
        for endpoint in (broker.endpoint(cluster.listener),)
    )


def _news(
    cluster: Cluster,
    states: list[PartitionState],
    broker_ids: Collection[int],
    kind: RequestType = RequestType.INCREMENTAL,
) -> dict[int, UpdateMetadata]:
    brokers = tuple(cluster.image.brokers[one] for one in sorted(cluster.image.brokers))
    return {
        broker_id: UpdateMetadata(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=cluster.image.brokers[broker_id].epoch,
            type=kind,
            partitions=tuple(states),
            brokers=brokers,
        )
        for broker_id in broker_ids
        if broker_id in cluster.image.brokers
    }


def _stops(cluster: Cluster, stops: dict[int, list[StoppedPartition]]) -> dict[int, StopReplica]:
    return {
        broker_id: StopReplica(
            controller_id=cluster.controller_id,
            controller_epoch=cluster.controller_epoch,
            broker_epoch=cluster.image.brokers[broker_id].epoch,
            partitions=tuple(stopped),
        )
        for broker_id, stopped in stops.items()
    }
