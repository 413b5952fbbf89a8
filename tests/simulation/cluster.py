"""A simulated cluster by seed: brokers that die, pause, lose power and each other, clients that write, and what must hold."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.client.produce import ProduceCall, encode_produce_call
from penstock.metadata import layout
from penstock.metadata.layout import PartitionState, TopicNode
from penstock.metadata.store import Create, Node, NoNodeError, Read, ReadKind, Refusal
from penstock.peers.link import Body
from penstock.protocol.produce import NO_TOPIC_ID
from penstock.records.build import build_batch
from tests.simulation.broker import SimBroker
from tests.simulation.checks import Checks
from tests.simulation.events import Events, NodeLoop
from tests.simulation.network import Network, SimLink
from tests.simulation.store import SimTree
from tests.support.forgetful_files import ForgetfulFiles

CLIENT_ID = 200
TOPIC = "t"
PRODUCE_VERSION = 9


class SimCluster:
    def __init__(self, seed: int, *, brokers: int = 3, partitions: int = 2, min_isr: int = 2) -> None:
        self.events = Events(seed)
        self.chance = self.events.chance
        self.network = Network(self.events)
        self.tree = SimTree(self.events)
        self._settings = {
            "min.insync.replicas": str(min_isr),
            "log.segment.bytes": "600",
            "log.index.interval.bytes": "100",
            "log.index.size.max.bytes": "4096",
        }
        self.disks = {one: ForgetfulFiles() for one in range(1, brokers + 1)}
        self.generations = dict.fromkeys(self.disks, 1)
        self.brokers: dict[int, SimBroker] = {}
        self._is_healing = False
        self._client_loop = NodeLoop(self.events)
        self._client_links: dict[int, SimLink] = {}
        self._written = 0
        self.checks = Checks(self)
        self._make_topic({n: tuple((n + slot) % brokers + 1 for slot in range(brokers)) for n in range(partitions)})
        for broker_id, disk in self.disks.items():
            disk.make_directory("/data")
            self.start(broker_id)

    def _make_topic(self, replicas: dict[int, tuple[int, ...]]) -> None:
        made = layout.permanent_nodes(())
        node = TopicNode(topic_id=uuid.UUID(int=77), replicas=replicas)
        topic = Create(path=layout.topic_path(TOPIC), data=layout.encode_topic(node))
        assert not isinstance(self.tree.commit((*made, topic), 0), Refusal)
        self.assigned = {TopicPartition(TOPIC, number): one for number, one in replicas.items()}

    def state(self, key: TopicPartition) -> PartitionState | None:
        """A partition as the store has it."""
        path = layout.state_path(*key)
        try:
            found = self.tree.tree.read(Read(kind=ReadKind.DATA, path=path), 0)
        except NoNodeError:
            return None
        assert isinstance(found, Node)
        return layout.decode_state(path, found.data)

    # Brokers.
    def start(self, broker_id: int) -> None:
        if broker_id in self.brokers:
            return
        self.events.note(f"start {broker_id}")
        generation = str(self.generations[broker_id])
        broker = SimBroker(
            broker_id, self.events, self.network, self.tree, self.disks[broker_id], generation, self._settings
        )
        self.brokers[broker_id] = broker
        self.network.hosts[broker_id] = broker

    def kill(self, broker_id: int, *, power: bool) -> None:
        broker = self.brokers.pop(broker_id)
        self.events.note(f"{'power' if power else 'kill'} {broker_id}")
        broker.end()
        self.checks.died(broker_id, power=power)
        if power:
            self.disks[broker_id].power_cut(self.chance)
            self.generations[broker_id] += 1
        self.events.at(self.chance.randrange(50, 1500), lambda: self.start(broker_id))

    def pause(self, broker_id: int) -> None:
        """The process stands still; if that takes long its session ends, and it comes back with another."""
        ms = self.chance.randrange(50, 1200)
        self.events.note(f"pause {broker_id} {ms}")
        self.brokers[broker_id].loop.pause(ms)

    def cut_off(self, broker_id: int) -> None:
        """From the store alone: it goes on leading until others are told to."""
        ms = self.chance.randrange(50, 1200)
        self.events.note(f"cut off {broker_id} from the store {ms}")
        self.tree.cut_off.add(broker_id)
        self.events.at(ms, lambda: self.tree.cut_off.discard(broker_id))

    # Chaos.
    def disturb(self) -> None:
        if self._is_healing:
            return
        what = self.chance.random()
        alive = sorted(self.brokers)
        if alive:
            one = self.chance.choice(alive)
            if what < 0.25:
                self.kill(one, power=False)
            elif what < 0.35:
                self.kill(one, power=self._may_lose_power())
            elif what < 0.5:
                self.pause(one)
            elif what < 0.6:
                self.cut_off(one)
            elif what < 0.9:
                self.cut(one)
        self.events.at(self.chance.randrange(50, 900), self.disturb)

    def _may_lose_power(self) -> bool:
        """One at a time: the others have everything that is committed, on disks that forgot nothing."""
        states = [(key, self.state(key)) for key in self.assigned]
        return len(self.brokers) == len(self.disks) and all(
            state is not None
            and set(state.isr) == set(self.assigned[key])
            and all(self.recorded(state, one) == str(self.generations[one]) for one in state.isr)
            for key, state in states
        )

    @staticmethod
    def recorded(state: PartitionState, broker_id: int) -> str:
        """The generation of the broker's logs when it was last known to be in sync."""
        recorded = state.extra.get("log_generations", {})
        assert isinstance(recorded, dict)
        return str(recorded.get(str(broker_id), ""))

    def cut(self, one: int) -> None:
        other = self.chance.choice([broker for broker in self.disks if broker != one])
        ways = self.chance.choice(([(one, other)], [(other, one)], [(one, other), (other, one)]))
        self.events.note(f"cut {ways}")
        self.network.cuts.update(ways)
        self.events.at(self.chance.randrange(100, 1500), lambda: self.network.cuts.difference_update(ways))

    def heal(self) -> None:
        self._is_healing = True
        self.network.cuts.clear()
        self.tree.cut_off.clear()
        for broker_id in self.disks:
            self.start(broker_id)

    # Clients.
    def write(self) -> None:
        if self._is_healing:
            return
        key = self.chance.choice(list(self.assigned))
        state = self.state(key)
        target = -1 if state is None else state.leader
        if self.chance.random() < 0.1:
            target = self.chance.choice(list(self.disks))
        if target >= 0:
            self._write_to(target, key)
        self.events.at(self.chance.randrange(1, 40), self.write)

    def _write_to(self, target: int, key: TopicPartition) -> None:
        records: list[tuple[int, bytes | None, bytes, tuple[()]]] = []
        for _ in range(self.chance.randrange(1, 4)):
            self._written += 1
            records.append((self.events.clock.wall_ms(), None, b"value %d" % self._written, ()))
        acks = -1 if self.chance.random() < 0.7 else 1
        call = ProduceCall(key.topic, NO_TOPIC_ID, key.partition, build_batch(records), acks, 1_000, None)
        link = self._client_links.get(target)
        if link is None:
            link = self._client_links[target] = self.network.link(CLIENT_ID, target, self._client_loop)
        values = [value for _, _, value, _ in records]

        def answered(answer: Body | PenstockError) -> None:
            if isinstance(answer, PenstockError) or acks != -1:
                return
            found: Any = call_codec(0, PRODUCE_VERSION).decode(bytes(answer.frame[answer.position :]))
            result = found.responses[0].partition_responses[0]
            if result.error_code == 0:
                self.checks.acknowledged(key, result.base_offset, values)

        link.call(0, PRODUCE_VERSION, b"".join(encode_produce_call(call, PRODUCE_VERSION)), answered)

    # Running.
    def run(self, chaos_ms: int = 6_000, quiet_ms: int = 6_000) -> None:
        end_ms = self.events.now_ms + chaos_ms
        self.events.at(300, self.write)
        self.events.at(600, self.disturb)
        self._run_until(end_ms)
        self.events.note("heal")
        self.heal()
        self._run_until(end_ms + quiet_ms)
        self.checks.at_the_end()

    def _run_until(self, end_ms: int) -> None:
        while self.events.now_ms < end_ms:
            assert self.events.step()
            self.checks.after_a_step()
