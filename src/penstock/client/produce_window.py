"""Batches sent ahead of their answers, a few on each leader's connection, in order.

For batches that carry a producer id and sequences: after an error those behind the failed one may have been appended or not,
and may be sent again without harm. A leader remembers five batches of a producer: no more are on the way to one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import NamedTuple, Protocol

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.produce import receive_produce, send_produce

IN_FLIGHT_MAX = 5


class Outgoing(Protocol):
    """A batch and where it goes."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def data(self) -> bytes: ...


class _Sent(NamedTuple):
    batch: Outgoing
    version: int


class ProduceWindow:
    """Any error of `send` or `flush` leaves it broken: `abandon` tells what is not acknowledged and makes it whole again."""

    def __init__(self, cluster: Cluster, *, transactional_id: str | None) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._lent = contextlib.ExitStack()
        self._connections: dict[int, Connection] = {}
        self._sent: dict[int, deque[_Sent]] = {}
        self._order: dict[int, Outgoing] = {}
        """Not acknowledged yet, by identity, in the order of sending."""

    def send(self, batch: Outgoing) -> None:
        """Sends it, and waits for the oldest answer of its leader while too many are outstanding."""
        self._order[id(batch)] = batch
        leader = self._cluster.leader(batch.partition)
        while len(self._sent.get(leader.node, ())) >= IN_FLIGHT_MAX:
            self._receive(leader.node)
        if leader.node not in self._connections:
            self._connections[leader.node] = self._lent.enter_context(self._cluster.connection(leader.node))
        version = send_produce(
            self._connections[leader.node],
            self._cluster,
            leader,
            batch.partition,
            batch.data,
            -1,
            self._transactional_id,
        )
        self._sent.setdefault(leader.node, deque()).append(_Sent(batch, version))

    def flush(self) -> None:
        """Waits for every answer, and gives the connections back."""
        for node, sent in self._sent.items():
            while sent:
                self._receive(node)
        self._close()

    def abandon(self) -> list[Outgoing]:
        """What is not acknowledged, in the order in which it was sent; its connections are closed."""
        left = list(self._order.values())
        self._order.clear()
        self._sent.clear()
        for connection in self._connections.values():
            connection.close()
        with contextlib.suppress(_Abandoned):
            self._lent.__exit__(_Abandoned, _Abandoned(), None)
        self._connections.clear()
        for batch in left:
            self._cluster.forget(batch.partition.topic)
        return left

    def _receive(self, node: int) -> None:
        batch, version = self._sent[node].popleft()
        receive_produce(self._connections[node], self._cluster, batch.partition, version)
        del self._order[id(batch)]

    def _close(self) -> None:
        self._connections.clear()
        self._lent.close()


class _Abandoned(Exception):
    """For the connections' lender: they are not to be used again."""
