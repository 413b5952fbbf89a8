"""Topics that are going: their replicas are told, those that are away are waited for, and whoever answered has no log of them any more."""

from __future__ import annotations

from collections.abc import Callable

from penstock.controller.cluster import Cluster
from penstock.controller.peer_requests import PeerAnswer, PeerRequests, StopReplica
from penstock.controller.requests import tell_deletion


class Deletions:
    """One controller's. It changes nothing in the store: `ended` hears of a topic whose last log is gone."""

    def __init__(self, tell: Callable[[PeerRequests], object], ended: Callable[[str], object]) -> None:
        self._tell = tell
        self._ended = ended
        self._left: dict[str, set[int]] = {}
        """The brokers that still have logs of a topic."""

    def clear(self) -> None:
        self._left.clear()

    def forget(self, topic: str) -> None:
        self._left.pop(topic, None)

    def start(self, cluster: Cluster) -> None:
        """Tells the replicas of topics that are going, all of which must be alive for that."""
        image = cluster.image
        for name in sorted(image.deleting):
            topic = image.topics.get(name)
            replicas = {one for found in topic.partitions.values() for one in found.replicas} if topic else set()
            if not replicas <= image.brokers.keys() or name in self._left:
                continue
            self._left[name] = set(replicas)
            self._tell(tell_deletion(cluster, name))
            if not replicas:
                self._ended(name)

    def stopped(self, broker_id: int, request: StopReplica, answer: PeerAnswer) -> None:
        """A broker's answer: its logs of these topics are gone, but where it says otherwise."""
        if answer.error is not None:
            return
        for name in {one.topic for one in request.partitions if one.delete}:
            left = self._left.get(name)
            if left is None or any(key.topic == name for key in answer.partition_errors):
                continue
            left.discard(broker_id)
            if not left:
                self._ended(name)
