"""A model of a controller: one mind that never fails, whose words travel over the simulated network like anybody's.

What it decides follows rows C2 and R2 and the rule of log generations (decision 5): a broker whose disk forgot something is
not trusted as the member of an ISR that it was.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    UnknownTopicIdError,
)
from penstock.controller.peer_requests import (
    IsrChange,
    IsrChanged,
    LeaderAndIsr,
    LiveLeader,
    PartitionState,
    PeerAnswer,
    PeerRequest,
    UpdateMetadata,
)
from penstock.handlers.error_map import code_of
from penstock.metadata.layout import BrokerNode, Endpoint
from penstock.peers import messages
from penstock.peers.channels import BrokerLinks
from penstock.protocol.schemas import codec
from tests.simulation.broker import CONTROLLER_ID
from tests.simulation.events import Events, NodeLoop
from tests.simulation.network import Network

EPOCH = 1
RESEND_MS = 150


class Led:
    """One partition as the controller has it."""

    def __init__(self, topic: str, topic_id: uuid.UUID, partition: int, replicas: tuple[int, ...]) -> None:
        self.key = TopicPartition(topic, partition)
        self.topic_id = topic_id
        self.replicas = replicas
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.isr = replicas
        self.partition_epoch = 0
        self.generations: dict[int, int] = {}
        """Of the members of the ISR, when they became such."""
        self.eligible: dict[int, int] = {}
        """Members that left as the ISR fell below min ISR, with their generations then."""


class Life(tuple[int, int]):
    """Of a broker that is alive: its epoch and the generation of its log."""

    @property
    def epoch(self) -> int:
        return self[0]

    @property
    def generation(self) -> int:
        return self[1]


class ModelController:
    def __init__(self, events: Events, network: Network, min_isr: int) -> None:
        self._events = events
        self.loop = NodeLoop(events)
        self.min_isr = min_isr
        self.partitions: dict[TopicPartition, Led] = {}
        self.alive: dict[int, Life] = {}
        self._links = BrokerLinks(lambda broker_id: network.link(CONTROLLER_ID, broker_id, self.loop))
        self._sending: dict[int, list[PeerRequest]] = {}
        network.hosts[CONTROLLER_ID] = self

    # What happens to brokers.
    def joined(self, broker_id: int, epoch: int, generation: int) -> None:
        if broker_id in self.alive:
            self.left(broker_id)  # it came back before anybody noticed that it had gone
        self.alive[broker_id] = Life((epoch, generation))
        self._links.forget(broker_id)
        self._sending.pop(broker_id, None)
        self._decide([])
        self._tell(list(self.partitions.values()), [broker_id])

    def left(self, broker_id: int) -> None:
        if self.alive.pop(broker_id, None) is None:
            return
        self._links.forget(broker_id)
        self._sending.pop(broker_id, None)
        self._decide([broker_id])

    def _trusted(self, led: Led, broker_id: int, generations: dict[int, int]) -> bool:
        life = self.alive.get(broker_id)
        return life is not None and generations.get(broker_id) == life.generation

    def _decide(self, gone: list[int]) -> None:
        """Leaders for partitions whose leader is gone, ISRs without those who are."""
        changed = []
        for led in self.partitions.values():
            leads = led.leader >= 0 and led.leader in self.alive and led.leader not in gone
            if leads and not any(one in led.isr for one in gone):
                continue
            if leads:
                self._set_isr(led, tuple(one for one in led.isr if one not in gone))
                led.leader_epoch += 1
            elif not self._elect(led, gone):
                continue
            led.partition_epoch += 1
            changed.append(led)
            self._events.note(f"{led.key} leader={led.leader} epoch={led.leader_epoch} isr={led.isr}")
        self._tell(changed, list(self.alive))

    def _elect(self, led: Led, gone: list[int]) -> bool:
        """Says whether anything changed."""
        trusted = [one for one in led.replicas if one in led.isr and self._trusted(led, one, led.generations)]
        if not trusted:
            trusted = [one for one in led.replicas if self._trusted(led, one, led.eligible)]
            if not trusted:
                if led.leader == -1:
                    return False
                led.leader = -1
                led.leader_epoch += 1
                return True
            led.isr, led.generations, led.eligible = (), {}, {}
        led.leader = trusted[0]
        led.leader_epoch += 1
        self._set_isr(led, tuple(one for one in trusted if one not in gone))
        return True

    def _set_isr(self, led: Led, isr: tuple[int, ...]) -> None:
        if len(isr) < self.min_isr:
            for one in led.isr:
                if one not in isr and one in led.generations:
                    led.eligible[one] = led.generations[one]
        else:
            led.eligible = {}
        led.generations = {
            one: led.generations[one] if one in led.isr and one in led.generations else self.alive[one].generation
            for one in isr
        }
        led.isr = isr

    # What leaders ask.
    def serve(self, frame: bytes, answered: Callable[[bytes], object], failed: Callable[[], object]) -> None:
        assert int.from_bytes(frame[:2], "big") == messages.ALTER_PARTITION
        request = messages.read_isr_request(codec(56, 3).decode(frame, 12))
        self.loop.call_later(
            self._events.chance.randrange(10),
            lambda: self._alter(request.broker_id, request.broker_epoch, request.changes, frame[4:8], answered),
        )

    def _alter(
        self,
        broker_id: int,
        broker_epoch: int,
        changes: tuple[IsrChange, ...],
        correlation: bytes,
        answered: Callable[[bytes], object],
    ) -> None:
        results: list[tuple[IsrChanged, ErrorCode]] = []
        told = []
        for change in changes:
            led = next(
                (
                    one
                    for one in self.partitions.values()
                    if one.topic_id == change.topic_id and one.key.partition == change.partition
                ),
                None,
            )
            error: PenstockError | None = None
            if led is None:
                error = UnknownTopicIdError("no such topic")
            elif self.alive.get(broker_id, Life((-1, 0))).epoch != broker_epoch or led.leader != broker_id:
                error = FencedLeaderEpochError("not the leader")
            else:
                error = self._change(led, change)
            if led is not None and error is None:
                told.append(led)
                self._events.note(f"{led.key} isr={led.isr} version={led.partition_epoch}")
            results.append((_changed(change, led, error), ErrorCode.none if error is None else code_of(error)))
        buffer = io.BytesIO()
        response = messages.write_isr_answer(codec(56, 3).response, ErrorCode.none, results)
        entity_writer(type(response))(buffer, response)
        body = correlation + b"\x00" + buffer.getvalue()
        self._tell(told, list(self.alive), roles=False)
        answered(len(body).to_bytes(4, "big") + body)

    def _change(self, led: Led, change: IsrChange) -> PenstockError | None:
        wanted = tuple(member.broker_id for member in change.new_isr)
        if change.leader_epoch != led.leader_epoch:
            return FencedLeaderEpochError("another epoch")
        if set(wanted) == set(led.isr):
            return None
        if change.partition_epoch != led.partition_epoch:
            return InvalidUpdateVersionError("it changed meanwhile")
        for member in change.new_isr:
            life = self.alive.get(member.broker_id)
            if life is None or (member.broker_epoch >= 0 and member.broker_epoch != life.epoch):
                return IneligibleReplicaError(f"broker {member.broker_id} is not alive in epoch {member.broker_epoch}")
        self._set_isr(led, wanted)
        led.partition_epoch += 1
        return None

    # Telling.
    def _tell(self, changed: list[Led], brokers: list[int], *, roles: bool = True) -> None:
        if not changed:
            return
        for broker_id in brokers:
            life = self.alive.get(broker_id)
            if life is None:
                continue
            states = tuple(_state(led) for led in changed)
            mine = tuple(state for state in states if broker_id in state.replicas)
            if roles and mine:
                live = tuple(LiveLeader(broker_id=one, host="sim", port=one) for one in self.alive)
                self._send(
                    broker_id,
                    LeaderAndIsr(
                        controller_id=CONTROLLER_ID,
                        controller_epoch=EPOCH,
                        broker_epoch=life.epoch,
                        partitions=mine,
                        live_leaders=live,
                    ),
                )
            self._send(
                broker_id,
                UpdateMetadata(
                    controller_id=CONTROLLER_ID,
                    controller_epoch=EPOCH,
                    broker_epoch=life.epoch,
                    partitions=states,
                    brokers=tuple(_node(one) for one in sorted(self.alive)),
                ),
            )

    def _send(self, broker_id: int, request: PeerRequest) -> None:
        queue = self._sending.setdefault(broker_id, [])
        queue.append(request)
        if len(queue) == 1:
            self._send_first(broker_id, queue)

    def _send_first(self, broker_id: int, queue: list[PeerRequest]) -> None:
        if self._sending.get(broker_id) is not queue or not queue:
            return

        def done(answer: PeerAnswer) -> None:
            if self._sending.get(broker_id) is not queue:
                return
            if answer.error is not None:
                self.loop.call_later(RESEND_MS, lambda: self._send_first(broker_id, queue))
                return
            queue.pop(0)
            self._send_first(broker_id, queue)

        self._links.send(broker_id, queue[0], done)


def _changed(change: IsrChange, led: Led | None, error: PenstockError | None) -> IsrChanged:
    if led is None or error is not None:
        return IsrChanged(topic_id=change.topic_id, partition=change.partition, error=error)
    return IsrChanged(
        topic_id=change.topic_id,
        partition=change.partition,
        leader=led.leader,
        leader_epoch=led.leader_epoch,
        isr=led.isr,
        partition_epoch=led.partition_epoch,
    )


def _state(led: Led) -> PartitionState:
    return PartitionState(
        topic=led.key.topic,
        topic_id=led.topic_id,
        partition=led.key.partition,
        controller_epoch=EPOCH,
        leader=led.leader,
        leader_epoch=led.leader_epoch,
        isr=led.isr,
        partition_epoch=led.partition_epoch,
        replicas=led.replicas,
    )


def _node(broker_id: int) -> BrokerNode:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="sim", port=broker_id)
    return BrokerNode(broker_id=broker_id, endpoints=(endpoint,))
