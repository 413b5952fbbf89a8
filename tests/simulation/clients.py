"""Clients of a simulated cluster: records written once, and an idempotent producer of each partition that writes until it is heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.client.messages import call_codec
from penstock.client.produce import ProduceCall, encode_produce_call
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.peers.link import Body
from penstock.records.build import build_batch
from tests.simulation.events import NodeLoop
from tests.simulation.network import SimLink

if TYPE_CHECKING:
    from tests.simulation.checks import Place
    from tests.simulation.cluster import SimCluster

CLIENT_ID = 200
PRODUCE_VERSION = 13
"""By topic id: a topic that was made again under its name is another."""
FIRST_PRODUCER = 1_000_000
"""Far beyond the ids that brokers give."""


class Idempotent:
    """A producer of one partition with one request under way: what it sends it sends again until it is told what became of it."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence = 0
        self.unheard: list[bytes] = []
        """What was sent, and not heard of."""
        self.is_waiting = False

    def next(self, count: int) -> list[bytes]:
        if not self.unheard:
            self.unheard = [b"%d:%d" % (self.producer_id, self.sequence + number) for number in range(count)]
        return self.unheard

    def heard(self) -> None:
        self.sequence += len(self.unheard)
        self.unheard = []


class Clients:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._events = cluster.events
        self._chance = cluster.chance
        self._loop = NodeLoop(cluster.events)
        self._links: dict[int, SimLink] = {}
        self._written = 0
        self.idempotent: dict[Place, Idempotent] = {}

    def write(self) -> None:
        """Somebody writes something somewhere; now and then to whoever does not lead there."""
        if self._cluster.is_healing:
            return
        place = self._chance.choice([one for one in self._cluster.assigned if one.key.topic not in INTERNAL_TOPICS])
        state = self._cluster.state(place.key)
        target = -1 if state is None else state.leader
        if self._chance.random() < 0.3:
            if target >= 0:
                self._write_again(target, place)
        else:
            if self._chance.random() < 0.1:
                target = self._chance.choice(list(self._cluster.disks))
            if target >= 0:
                acks = -1 if self._chance.random() < 0.7 else 1
                self.write_once(target, place, acks)
        self._events.at(self._chance.randrange(1, 40), self.write)

    def write_once(self, target: int, place: Place, acks: int = -1) -> None:
        values = []
        for _ in range(self._chance.randrange(1, 4)):
            self._written += 1
            values.append(b"value %d" % self._written)

        def answered(code: int, base_offset: int) -> None:
            if code == 0 and acks == -1:
                self._cluster.checks.acknowledged(place, base_offset, values)

        self._send(target, place, build_batch(self._records(values)), acks, answered)

    def _write_again(self, target: int, place: Place) -> None:
        if place not in self.idempotent:
            self.idempotent[place] = Idempotent(FIRST_PRODUCER + len(self.idempotent))
        producer = self.idempotent[place]
        if producer.is_waiting:
            return
        producer.is_waiting = True
        values = producer.next(self._chance.randrange(1, 3))
        batch = build_batch(
            self._records(values),
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=producer.sequence,
        )
        before = self._cluster.state(place.key)

        def answered(code: int, base_offset: int) -> None:
            producer.is_waiting = False
            if code == 0:
                producer.heard()
                self._cluster.checks.acknowledged(place, base_offset, values)
            elif code == ErrorCode.out_of_order_sequence_number:
                now = self._cluster.state(place.key)
                if before is not None and now is not None and before.leader_epoch == now.leader_epoch:
                    self._cluster.checks.refused(place, f"producer {producer.producer_id} at {producer.sequence}")

        self._send(target, place, batch, -1, answered)

    def _records(self, values: list[bytes]) -> list[tuple[int, bytes | None, bytes, tuple[()]]]:
        return [(self._events.clock.wall_ms(), None, value, ()) for value in values]

    def _send(self, target: int, place: Place, batch: bytes, acks: int, answered: Any) -> None:
        topic_id, (topic, number) = place
        call = ProduceCall(topic, topic_id, number, batch, acks, 1_000, None)
        link = self._links.get(target)
        if link is None:
            link = self._links[target] = self._cluster.network.link(CLIENT_ID, target, self._loop)

        def told(answer: Body | PenstockError) -> None:
            if isinstance(answer, PenstockError):
                answered(-1, -1)
                return
            found: Any = call_codec(0, PRODUCE_VERSION).decode(bytes(answer.frame[answer.position :]))
            result = found.responses[0].partition_responses[0]
            answered(int(result.error_code), result.base_offset)

        link.call(0, PRODUCE_VERSION, b"".join(encode_produce_call(call, PRODUCE_VERSION)), told)
