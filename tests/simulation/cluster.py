"""A simulated cluster by seed: brokers that die, pause, stop, lose power and each other, topics that come, grow and go, clients that write."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from typing import cast

from penstock.app import generation
from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.controller.topics import NewTopic
from penstock.drivers import groups, transactions
from penstock.metadata import layout
from penstock.metadata.image import TopicImage
from penstock.metadata.layout import PartitionState, TopicNode
from penstock.metadata.store import Create, Refusal
from tests.simulation import clients, transactors
from tests.simulation.broker import SimBroker
from tests.simulation.checks import LOOSE, Checks, Place
from tests.simulation.clients import Clients
from tests.simulation.events import Events
from tests.simulation.network import Network
from tests.simulation.store import SimTree
from tests.simulation.transaction_checks import check_transactions
from tests.simulation.transactors import LAST_TRY_MS, Transactors
from tests.support.forgetful_files import ForgetfulFiles

TOPIC = "t"
PASSING = ("a", "b")
"""Topics that come, grow, go, and come again under their old names."""
PARTITIONS_MAX = 3
COORDINATORS = (groups.TOPIC, transactions.TOPIC)


class SimCluster:
    @classmethod
    def of(cls, seed: int) -> SimCluster:
        """Every other one has coordinators too, and two in four have disks that break."""
        return cls(seed, has_transactions=seed % 2 == 1, disks=1 + seed // 2 % 2)

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        partitions: int = 2,
        min_isr: int = 2,
        has_transactions: bool = False,
        disks: int = 1,
    ) -> None:
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
        self.paths = ("/data", "/more")[:disks]
        """Log directories of each broker, each on a disk of its own."""
        self._boots = dict.fromkeys(self.disks, 1)
        self._generation_numbers = count(1)
        self.generations = dict.fromkeys(self.disks, "")
        """As each broker registers it; none where that will be another one."""
        self.brokers: dict[int, SimBroker] = {}
        self.is_healing = False
        self.assigned: dict[Place, tuple[int, ...]] = {}
        """As the store has it; not of topics that are going."""
        self.going: tuple[str, ...] = ()
        topics = {TOPIC: partitions, LOOSE: 1}
        if has_transactions:
            topics |= dict.fromkeys(COORDINATORS, 1)
        self._make_topics(brokers, topics)
        self.look()
        self.clients = Clients(self)
        self.transactors: Transactors | None = None
        if has_transactions:
            self.transactors = Transactors(self, [place for place in self.assigned if place.key.topic == TOPIC])
        self.checks = Checks(self)
        for broker_id, disk in self.disks.items():
            for path in self.paths:
                disk.make_directory(path)
            self.start(broker_id)

    def _make_topics(self, brokers: int, topics: dict[str, int]) -> None:
        made = list(layout.permanent_nodes(()))
        for number, (name, partitions) in enumerate(topics.items()):
            replicas = {n: tuple((n + slot) % brokers + 1 for slot in range(brokers)) for n in range(partitions)}
            node = TopicNode(topic_id=uuid.UUID(int=77 + number), replicas=replicas)
            made.append(Create(path=layout.topic_path(name), data=layout.encode_topic(node)))
            made.append(Create(path=layout.topic_config_path(name), data=layout.encode_config({})))
        assert not isinstance(self.tree.commit(tuple(made), 0), Refusal)

    # What the store has.
    def look(self) -> None:
        """Reads which topics there are."""
        self.going = self.tree.children(layout.DELETED_TOPICS)
        assigned = {}
        for name in self.tree.children(layout.TOPICS):
            path = layout.topic_path(name)
            data = self.tree.data(path)
            if data is not None and name not in self.going:
                node = layout.decode_topic(path, data)
                for number, replicas in node.replicas.items():
                    assigned[Place(node.topic_id.bytes, TopicPartition(name, number))] = replicas
        self.assigned = assigned

    def state(self, key: TopicPartition) -> PartitionState | None:
        """A partition as the store has it."""
        path = layout.state_path(*key)
        data = self.tree.data(path)
        return None if data is None else layout.decode_state(path, data)

    def isr(self, place: Place) -> set[int]:
        state = self.state(place.key)
        return set() if state is None else set(state.isr)

    # Brokers.
    def start(self, broker_id: int) -> None:
        if broker_id in self.brokers:
            return
        self.events.note(f"start {broker_id}")
        broker = SimBroker(
            broker_id,
            self.events,
            self.network,
            self.tree,
            self.disks[broker_id],
            self.paths,
            lambda: str(next(self._generation_numbers)),
            str(self._boots[broker_id]),
            self._settings,
        )
        self.generations[broker_id] = broker.generation
        self.brokers[broker_id] = broker
        self.network.hosts[broker_id] = broker

    def end(self, broker_id: int, *, power: bool = False) -> None:
        """A kill, and nobody starts it again."""
        self.events.note(f"{'power' if power else 'kill'} {broker_id}")
        self.brokers.pop(broker_id).end()
        self.checks.died(broker_id, power=power)

    def kill(self, broker_id: int, *, power: bool) -> None:
        self.end(broker_id, power=power)
        if power:
            self.disks[broker_id].power_cut(self.chance)
            self._boots[broker_id] += 1
            self.generations[broker_id] = ""
        self.events.at(self.chance.randrange(50, 1500), lambda: self.start(broker_id))

    def break_disk(self, broker_id: int) -> None:
        """One of its disks, until somebody sees to it and starts the broker again. Meanwhile it may be started without."""
        disk = self.disks[broker_id]
        if len(self.paths) > 1 and not disk.broken and self._is_dispensable(broker_id):
            path = self.chance.choice(self.paths)
            self.events.note(f"break {path} of {broker_id}")
            disk.broken.add(path)
            self.events.at(self.chance.randrange(200, 2000), lambda: self.mend_disk(broker_id))

    def mend_disk(self, broker_id: int) -> None:
        disk = self.disks[broker_id]
        broken = sorted(disk.broken)
        if broken:
            self.events.note(f"mend {broker_id}")
            disk.broken.clear()
            if broker_id in self.brokers:
                self.kill(broker_id, power=False)
            if not all(disk.exists(f"{path}/{generation.FILE_NAME}") for path in self.paths):  # it was noticed
                self.generations[broker_id] = ""
                if self._is_dispensable(broker_id) and self._needs_two():
                    self.checks.forgot(broker_id)
                    for path in broken:
                        disk.lose_unsynced(path, self.chance)

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

    def stop(self, broker_id: int, tries: int = 3) -> None:
        """A controlled shutdown: leaders move first, if the controller can be heard; then a clean end."""
        broker = self.brokers[broker_id]
        self.events.note(f"stop {broker_id}")

        def told(left: int | PenstockError) -> None:
            if self.brokers.get(broker_id) is not broker or broker.loop.is_dead:
                return
            if left != 0 and tries > 1 and not self.is_healing:
                broker.loop.call_later(100, lambda: self.stop(broker_id, tries - 1))
                return
            self.events.note(f"stopped {broker_id}, {left if isinstance(left, int) else 'unheard'}")
            del self.brokers[broker_id]
            broker.close()
            self.checks.died(broker_id, power=False)
            self.events.at(0 if self.is_healing else self.chance.randrange(50, 1500), lambda: self.start(broker_id))

        if broker.loop.is_dead or self.brokers.get(broker_id) is not broker:
            return
        broker.shut_down(told)

    # Chaos.
    def disturb(self) -> None:
        if self.is_healing:
            return
        what = self.chance.random()
        alive = sorted(self.brokers)
        if alive:
            one = self.chance.choice(alive)
            if what < 0.22:
                self.kill(one, power=False)
            elif what < 0.32:
                self.kill(one, power=self._may_forget())
            elif what < 0.43:
                self.pause(one)
            elif what < 0.5:
                self.cut_off(one)
            elif what < 0.7:
                self.cut(one)
            elif what < 0.77:
                self.stop(one)
            elif what < 0.9:
                self.cut_client(one)
            else:
                self.break_disk(one)
        self.events.at(self.chance.randrange(50, 900), self.disturb)

    def administer(self) -> None:
        """What somebody asks of any broker, which may be one that is about to die."""
        if self.is_healing:
            return
        alive = sorted(self.brokers)
        if alive:
            broker = self.brokers[self.chance.choice(alive)]
            act = self.chance.choice((self._change_topics, self._change_topics, self._change_configs, self._elect))
            broker.loop.call_soon(lambda: act(broker))
        self.events.at(self.chance.randrange(100, 900), self.administer)

    def _change_topics(self, broker: SimBroker) -> None:
        name = self.chance.choice(PASSING)
        topic = broker.image.topics.get(name)
        try:
            if topic is None:
                self.events.note(f"create {name} at {broker.node_id}")
                wanted = NewTopic(name=name, partitions=1, replication_factor=self.chance.choice((2, 3)))
                broker.topics.create(broker.topics.decide(wanted), lambda _error: None)
            elif len(topic.partitions) < PARTITIONS_MAX and self.chance.random() < 0.5:
                self.events.note(f"grow {name} at {broker.node_id}")
                grown = broker.topics.decide_grow(topic, len(topic.partitions) + 1, None)
                broker.topics.submit(grown, lambda _error: None)
            else:
                self.events.note(f"delete {name} at {broker.node_id}")
                broker.topics.delete(topic, lambda _error: None)
        except PenstockError as error:
            self.events.note(f"refused: {type(error).__name__}")

    def _change_configs(self, broker: SimBroker) -> None:
        name = self.chance.choice((TOPIC, TOPIC, LOOSE))
        numbers = ("2",) if self.checks.doubts(TOPIC) else ("1", "2")
        value = self.chance.choice(numbers) if name == TOPIC else self.chance.choice(("true", "false"))
        key = "min.insync.replicas" if name == TOPIC else "unclean.leader.election.enable"
        topic = broker.image.topics.get(name)
        if topic is not None:
            self._configure(broker, topic, {key: value})

    def _configure(self, broker: SimBroker, topic: TopicImage, config: dict[str, str]) -> None:
        self.events.note(f"configure {topic.name} {config} at {broker.node_id}")
        path = layout.topic_config_path(topic.name)
        broker.topics.change_config(path, lambda: broker.topics.decide_config(topic, config), lambda _error: None)

    def _elect(self, broker: SimBroker) -> None:
        self.events.note(f"preferred leaders at {broker.node_id}")
        broker.controller.elect_preferred([place.key for place in self.assigned], lambda _error: None)

    def _may_forget(self) -> bool:
        """One at a time: the others have everything that is committed, on disks that forgot nothing."""
        states = [(place, self.state(place.key)) for place in self.assigned]
        is_whole = len(self.brokers) == len(self.disks) and not any(disk.broken for disk in self.disks.values())
        return (
            is_whole
            and self._needs_two()
            and all(
                state is not None
                and set(state.isr) == set(self.assigned[place])
                and len(state.isr) > 1
                and all(self.recorded(state, one) == self.generations[one] for one in state.isr)
                for place, state in states
                if place.key.topic != LOOSE
            )
        )

    def _needs_two(self) -> bool:
        """Whether every min ISR is. Where one will do, that may be the one which forgot: until its session ends nobody knows that it is gone,
        and when the others leave meanwhile they are not eligible."""
        return all(config.get("min.insync.replicas") != "1" for config in self.tree.topic_configs().values())

    def _is_dispensable(self, broker_id: int) -> bool:
        """Whether of each partition another one has everything that is committed, and may lead."""
        states = [self.state(place.key) for place in self.assigned if place.key.topic != LOOSE]
        return all(
            any(
                one != broker_id and self.recorded(state, one) == self.generations[one] and not self.disks[one].broken
                for one in (*state.isr, *cast(list[int], state.extra.get("eligible", [])))
            )
            for state in states
            if state is not None
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

    def cut_client(self, broker_id: int) -> None:
        """Requests are lost, or only their answers."""
        client = self.chance.choice((clients.CLIENT_ID, transactors.CLIENT_ID))
        way = self.chance.choice(((client, broker_id), (broker_id, client)))
        self.events.note(f"cut {way}")
        self.network.cuts.add(way)
        self.events.at(self.chance.randrange(50, 800), lambda: self.network.cuts.discard(way))

    def heal(self) -> None:
        self.is_healing = True
        self.network.cuts.clear()
        self.tree.cut_off.clear()
        for broker_id in self.disks:
            self.mend_disk(broker_id)
            self.start(broker_id)

    # Running.
    def run(self, chaos_ms: int = 6_000, quiet_ms: int = 6_000) -> None:
        end_ms = self.events.now_ms + chaos_ms
        self.events.at(300, self.clients.write)
        self.events.at(600, self.disturb)
        self.events.at(500, self.administer)
        if self.transactors is not None:
            self.events.at(400, self.transactors.start)
            self.events.at(chaos_ms + LAST_TRY_MS, self.transactors.finish)
        self.run_until(lambda: self.events.now_ms >= end_ms)
        self.events.note("heal")
        self.heal()
        self.run_until(lambda: self.events.now_ms >= end_ms + quiet_ms)
        self.checks.at_the_end()
        if self.transactors is not None:
            check_transactions(self, self.transactors)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            assert self.events.step()
            self.checks.after_a_step()
