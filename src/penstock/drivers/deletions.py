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
        self._told: dict[str, set[int]] = {}
        """Those of them that were told so in the life they are in."""

    def clear(self) -> None:
        self._left.clear()
        self._told.clear()

    def forget(self, topic: str) -> None:
        self._left.pop(topic, None)
        self._told.pop(topic, None)

    def gone(self, broker_id: int) -> None:
        """What a broker was told in this life it may not have done: it is told again when it is back."""
        for told in self._told.values():
            told.discard(broker_id)

    def start(self, cluster: Cluster) -> None:
        """Tells the replicas of topics that are going, those that are alive; clients hear of it at once."""
        image = cluster.image
        for name in sorted(image.deleting):
            topic = image.topics.get(name)
            replicas = {one for found in topic.partitions.values() for one in found.replicas} if topic else set()
            left = self._left.setdefault(name, set(replicas))
            is_new = name not in self._told
            told = self._told.setdefault(name, set())
            due = (left & image.brokers.keys()) - told
            if due or is_new:
                told |= due
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
