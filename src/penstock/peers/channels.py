"""The ways between brokers, over links: a follower's to its leader, the controller's to brokers, a broker's to the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.controller.errors import NotControllerError
from penstock.controller.peer_requests import (
    ControlledShutdown,
    IsrChange,
    IsrChanged,
    IsrRequest,
    PeerAnswer,
    PeerRequest,
)
from penstock.controller.recovery import LogEnd
from penstock.drivers.followers import Answers, Offsets
from penstock.peers import messages, replica_fetch
from penstock.peers.errors import error_of
from penstock.peers.link import Body, Link
from penstock.peers.links import Links, OpenLink
from penstock.peers.messages import Call
from penstock.peers.replica_fetch import FetchLimits, FetchSession
from penstock.replication.fetch_sessions import FetchSessionNotFoundError
from penstock.replication.fetcher import Asked, LeaderOffsets

_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 9
_LATEST, _EARLIEST = -1, -2
_ANY_REPLICA = -2


def call(link: Link, asked: Call, done: Callable[[Any], object]) -> None:
    """Sends a request in kio's manner; `done` gets the answer's entity, or a PenstockError."""
    codec = call_codec(asked.api_key, asked.version)

    def answered(answer: Body | PenstockError) -> None:
        if isinstance(answer, Body):
            try:
                done(codec.decode(bytes(memoryview(answer.frame)[answer.position :])))
            except PenstockError as error:
                done(error)
        else:
            done(answer)

    link.call(asked.api_key, asked.version, asked.body, answered)


class LeaderLink:
    """A follower's way to one leader."""

    def __init__(self, link: Link, broker_id: int, broker_epoch: Callable[[], int], limits: FetchLimits) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._limits = limits
        self._session = FetchSession()

    def fetch(self, asked: list[Asked], done: Answers) -> None:
        session = self._session
        is_first = session.session_id == 0
        if is_first:
            session.reset()
        named, forgotten = session.ask(asked)
        body = replica_fetch.encode(named, forgotten, session, self._broker_id, self._broker_epoch(), self._limits)

        def answered(answer: Body | PenstockError) -> None:
            if not isinstance(answer, Body):
                session.reset()
                done(answer)
                return
            try:
                session_id, found = replica_fetch.decode(answer.frame, answer.position, session.names)
            except PenstockError as error:
                session.reset()
                if isinstance(error, FetchSessionNotFoundError) and not is_first:
                    self.fetch(asked, done)
                else:
                    done(error)
                return
            session.answered(session_id, found)
            done(found)

        self._link.call(replica_fetch.KEY, replica_fetch.VERSION, body, answered)

    def offsets(self, asked: Asked, done: Offsets) -> None:
        def ended(end: int | PenstockError) -> None:
            if isinstance(end, PenstockError):
                done(end)
            else:
                self._offset(asked, _EARLIEST, partial(begun, end))

        def begun(end: int, start: int | PenstockError) -> None:
            done(start if isinstance(start, PenstockError) else LeaderOffsets(start, end))

        self._offset(asked, _LATEST, ended)

    def _offset(self, asked: Asked, timestamp: int, done: Callable[[int | PenstockError], object]) -> None:
        codec = call_codec(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
        topic: TopicPartition = asked.topic_partition
        shape = codec.request.topics
        entry = shape.partitions.make(
            partition_index=topic.partition, current_leader_epoch=asked.leader_epoch, timestamp=timestamp
        )
        request = codec.request.make(
            replica_id=self._broker_id,
            isolation_level=0,
            topics=(shape.make(name=topic.topic, partitions=(entry,)),),
        )

        def answered(answer: Any) -> None:
            if isinstance(answer, PenstockError):
                done(answer)
                return
            found = answer.topics[0].partitions[0]
            done(error_of(found.error_code, f"the offsets of {topic}") or found.offset)

        call(self._link, Call(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, codec.encode(request)), answered)

    def close(self) -> None:
        self._link.close()


class BrokerLinks:
    """The controller's ways to brokers: to each one connection, its requests in order."""

    def __init__(self, open_link: OpenLink) -> None:
        self._links = Links(open_link)

    def send(self, broker_id: int, request: PeerRequest, done: Callable[[PeerAnswer], object]) -> None:
        """`done` gets the broker's answer, or one that says why there is none."""

        def answered(answer: Any) -> None:
            if isinstance(answer, PenstockError):
                done(PeerAnswer(error=answer))
            else:
                done(messages.read_peer_answer(request, answer))

        call(self._links.to(broker_id), messages.write_request(request), answered)

    def log_ends(
        self,
        broker_id: int,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, LogEnd] | PenstockError], object],
    ) -> None:
        """Where the broker's logs of these partitions end, those that it has."""
        codec = call_codec(_LIST_OFFSETS, _LIST_OFFSETS_VERSION)
        shape = codec.request.topics
        topics = tuple(
            shape.make(
                name=topic,
                partitions=tuple(
                    shape.partitions.make(partition_index=one.partition, current_leader_epoch=-1, timestamp=_LATEST)
                    for one in keys
                ),
            )
            for topic, keys in groupby(sorted(partitions), key=lambda one: one.topic)
        )
        request = codec.request.make(replica_id=_ANY_REPLICA, isolation_level=0, topics=topics)

        def answered(answer: Any) -> None:
            if isinstance(answer, PenstockError):
                done(answer)
                return
            done(
                {
                    TopicPartition(topic.name, one.partition_index): LogEnd(one.leader_epoch, one.offset)
                    for topic in answer.topics
                    for one in topic.partitions
                    if one.error_code == 0
                }
            )

        call(self._links.to(broker_id), Call(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, codec.encode(request)), answered)

    def forget(self, broker_id: int) -> None:
        """The broker is gone: what it was sent is not answered any more."""
        self._links.forget(broker_id)

    def close(self) -> None:
        self._links.close()


class ControllerLink:
    """A broker's way to the controller, wherever it is at the time."""

    def __init__(
        self,
        open_link: OpenLink,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller_id: Callable[[], int],
    ) -> None:
        self.links = Links(open_link)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_id = controller_id

    def alter(
        self, changes: Sequence[IsrChange], done: Callable[[Sequence[IsrChanged] | PenstockError], object]
    ) -> None:
        request = IsrRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch(), changes=tuple(changes))

        def answered(answer: Any) -> None:
            done(answer if isinstance(answer, PenstockError) else messages.read_isr_answer(answer))

        self._ask(messages.write_isr_request(request), answered)

    def shut_down(self, done: Callable[[int | PenstockError], object]) -> None:
        """Asks for this broker's leaders to move; `done` gets how many are left."""
        request = ControlledShutdown(broker_id=self._broker_id, broker_epoch=self._broker_epoch())

        def answered(answer: Any) -> None:
            if isinstance(answer, PenstockError):
                done(answer)
            else:
                refused = error_of(answer.error_code, "a controlled shutdown")
                done(refused if refused is not None else len(answer.remaining_partitions))

        self._ask(messages.write_controlled_shutdown(request), answered)

    def _ask(self, asked: Call, done: Callable[[Any], object]) -> None:
        controller_id = self._controller_id()
        if controller_id < 0:
            done(NotControllerError("there is no controller for now"))
            return
        call(self.links.to(controller_id), asked, done)
