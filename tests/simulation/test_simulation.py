"""Clusters by seed hold what they must, one seed gives one trace, and what is known to be wrong is caught."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.app import generation
from penstock.base.files import Files
from penstock.base.ids import TopicPartition
from penstock.controller import requests
from penstock.controller.brokers import keys_on
from penstock.controller.cluster import Cluster
from penstock.controller.topics import NewTopic
from penstock.drivers import controller
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.controller import Controller
from penstock.drivers.controller_view import read_brokers, read_image
from penstock.drivers.deletions import Deletions
from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.store import ConnectionLostError, Operation
from penstock.replication.fetcher import Cut, Fetcher
from penstock.replication.isr import Followers
from penstock.replication.partition import Diverging, Partition
from penstock.storage.directory_state import DirectoryState
from penstock.storage.producer_state import Producers
from tests.simulation import broker as simulated_broker
from tests.simulation.checks import Violation
from tests.simulation.cluster import TOPIC, SimCluster
from tests.simulation.noticed import assert_noticed

GROUPS, SEEDS_A_GROUP = 10, 10


def run(seed: int) -> SimCluster:
    cluster = SimCluster.of(seed)
    try:
        cluster.run()
    except BaseException as error:
        error.add_note("\n".join((*cluster.events.trace, f"seed {seed}")))
        raise
    return cluster


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_cluster_holds_what_it_must(group: int, full_counts: bool) -> None:
    # KAFKA-1211, 6361, 7128, 15221, 15583
    seeds = SEEDS_A_GROUP * (100 if full_counts else 1)
    for seed in range(group * seeds, (group + 1) * seeds):
        cluster = run(seed)
        assert len(cluster.checks.acked) > 30, "a run in which hardly anything is acknowledged proves little"


def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    code = (
        "import logging; logging.disable(50); from tests.simulation.cluster import SimCluster; c = SimCluster(5);"
        "c.run(); print(*c.events.trace, c.checks.committed, sep='\\n')"
    )
    root = Path(__file__).parents[2]
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (trace,) = traces
    assert "heal" in trace


# What is known to be wrong.
def _say_nothing_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Fetcher._asked
    monkeypatch.setattr(Fetcher, "_asked", staticmethod(lambda place: asked(place)._replace(last_epoch=-1)))


def by_watermark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower cuts to its high watermark, and believes that the rest is the leader's (before KIP-101)."""
    add = Fetcher.add

    def add_cut(self: Fetcher, partition: Partition) -> Cut | None:
        self._cutter.truncate(partition.topic_partition, partition.log.high_watermark)
        return add(self, partition)

    monkeypatch.setattr(Fetcher, "add", add_cut)
    _say_nothing_of_epochs(monkeypatch)


def without_kip_101(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers say nothing of their epochs, so that no leader tells them where they part."""
    _say_nothing_of_epochs(monkeypatch)


def without_kip_279(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower takes the leader's end of an epoch that it does not have itself for its own."""

    def shared_end(partition: Partition, diverging: Diverging) -> int:
        return min(diverging.end_offset, partition.log.end_offset)

    monkeypatch.setattr(Fetcher, "_shared_end", staticmethod(shared_end))


def without_maximal_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is under way counts as done."""
    propose = Followers._propose

    def propose_and_use(self: Followers, leader_epoch: int, isr: tuple[int, ...]) -> object:
        proposal = propose(self, leader_epoch, isr)
        self.maximal = isr
        return proposal

    monkeypatch.setattr(Followers, "_propose", propose_and_use)


def last_replica_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark moves on while fewer are in sync than min ISR asks for, and others may be elected."""
    monkeypatch.setattr(Partition, "effective_min_isr", property(lambda self: 1))
    eligible_are_forgotten(monkeypatch)


def eligible_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader takes a lower min ISR for its own before the controller has given up those who left."""
    confirm, make = Followers.confirm, Followers.__init__

    def confirm_alone(self: Followers, isr: tuple[int, ...], partition_epoch: int, *, has_eligible: bool) -> bool:
        return confirm(self, isr, partition_epoch)

    def make_alone(self: Followers, *arguments: Any, start_offset: int, has_eligible: bool) -> None:
        make(self, *arguments, start_offset=start_offset)

    monkeypatch.setattr(Followers, "confirm", confirm_alone)
    monkeypatch.setattr(Followers, "__init__", make_alone)


def watermark_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has what the leader knows to be committed joins: one that was killed knows only what its last checkpoint says."""
    make = Followers.__init__

    def make_for_all(self: Followers, *arguments: Any, start_offset: int, has_eligible: bool) -> None:
        make(self, *arguments, start_offset=0, has_eligible=has_eligible)

    monkeypatch.setattr(Followers, "__init__", make_for_all)


def deletions_forget_who_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that died before it removed its logs is not told again."""
    monkeypatch.setattr(Deletions, "gone", lambda _self, _broker_id: None)


def acts_before_it_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller tells brokers all that it knows before it has read what there is."""
    elected, failed = Controller._elected, Controller._failed

    def active_at_once(self: Controller, epoch: int, version: int) -> None:
        elected(self, epoch, version)
        self.is_active = True

    def active_all_the_same(self: Controller, name: str, error: Exception) -> None:
        failed(self, name, error)
        self.is_active = self._is_elected

    monkeypatch.setattr(Controller, "_elected", active_at_once)
    monkeypatch.setattr(Controller, "_failed", active_all_the_same)


def full_requests_leave_out_what_is_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_going", lambda state: replace(state, replicas=()))


def prefers_whoever_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preferred replica leads though it is not in sync."""

    def decide(cluster: Cluster, keys: Iterable[TopicPartition]) -> list[Operation]:
        found = [(key, cluster.partition(key)) for key in keys if key.topic not in cluster.image.deleting]
        return [
            cluster.becomes(key, one, one.replicas[0], tuple(dict.fromkeys((one.replicas[0], *one.isr))))
            for key, one in found
            if one is not None and one.leader_epoch >= 0 and one.replicas[0] in cluster.image.brokers
        ]

    monkeypatch.setattr(controller, "decide_preferred", decide)


def hands_over_to_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stops gives its leaders to replicas that are alive, in sync or not."""

    def decide(cluster: Cluster, broker_id: int) -> list[Operation]:
        operations: list[Operation] = []
        for key in keys_on(cluster, (broker_id,)):
            one = cluster.partition(key)
            assert one is not None
            others = [other for other in one.replicas if other != broker_id and other in cluster.image.brokers]
            if one.leader == broker_id and others and key.topic not in cluster.image.deleting:
                operations.append(cluster.becomes(key, one, others[-1], (others[-1],)))
        return operations

    monkeypatch.setattr(controller, "decide_shutdown", decide)


def unclean_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one topic allows counts for all."""
    monkeypatch.setattr(Cluster, "allows_unclean", lambda _self, _topic: True)


def no_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that was sent again is written again."""
    monkeypatch.setattr(Producers, "check", lambda _self, _batch, _origin: None)


BREAKAGES = [
    (by_watermark_only, 6),
    (without_kip_101, 1),
    (without_kip_279, 13),
    (without_maximal_isr, 13),
    (last_replica_standing, 4),
    (deletions_forget_who_died, 10),
    (full_requests_leave_out_what_is_going, 0),
    (prefers_whoever_is_first, 43),
    (hands_over_to_anybody, 32),
    (unclean_everywhere, 6),
    (no_sequences, 2),
]
"""Each with a seed that noticed it."""


@pytest.mark.parametrize(("breakage", "seed"), BREAKAGES)
def test_what_is_known_to_be_wrong_is_caught(
    breakage: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # KAFKA-1211, 6361, 15583
    breakage(monkeypatch)
    assert_noticed(seed)


# Stories that chance hardly ever tells.
def let_pass(cluster: SimCluster, ms: int) -> None:
    end_ms = cluster.events.now_ms + ms
    cluster.run_until(lambda: cluster.events.now_ms >= end_ms)


def a_first_look_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new controller loses its connection before it has read what there is, and a broker comes back with its logs."""
    cluster = SimCluster(1)
    let_pass(cluster, 400)
    (elected,) = [one for one, broker in cluster.brokers.items() if broker.controller.is_active]
    failures = [ConnectionLostError("cut short")]

    async def read_later(store: ClusterStore) -> Image:
        if failures:
            await read_brokers(store)  # watched from here on
            raise failures.pop()
        return await read_image(store)

    monkeypatch.setattr(controller, "read_image", read_later)
    cluster.end(elected)
    cluster.run_until(lambda: not failures)
    cluster.start(elected)
    let_pass(cluster, 3_000)
    cluster.checks.at_the_end()


def test_a_controller_says_nothing_before_it_has_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    a_first_look_is_cut_short(monkeypatch)
    acts_before_it_has_looked(monkeypatch)
    with pytest.raises(Violation, match="strays"):
        a_first_look_is_cut_short(monkeypatch)


def a_leader_is_back_before_anybody_saw_it_go() -> None:
    """It was the controller too, so it leads on in its epoch; one who left the ISR asks it for more and hears no answer, and nobody else asks; then it dies."""
    cluster = SimCluster(1, partitions=3)
    wait = partial(let_pass, cluster)
    wait(400)
    (leader,) = [one for one, broker in cluster.brokers.items() if broker.controller.is_active]
    place = next(one for one in cluster.assigned if one.key == (TOPIC, leader - 1))
    _, behind, other = cluster.assigned[place]
    cluster.clients.write_once(leader, place)
    wait(200)
    at = cluster.brokers[leader]
    at.directories.checkpoint()
    at.directories.checkpoint = lambda: None  # type: ignore[method-assign]
    cluster.network.cuts |= {(leader, behind), (behind, leader)}
    cluster.clients.write_once(leader, place)
    wait(1_500)
    assert cluster.isr(place) == {leader, other}
    assert len(cluster.checks.committed[place]) == at.partitions.get(*place.key).log.end_offset

    cluster.end(leader)
    cluster.run_until(lambda: cluster.tree.data(layout.broker_path(leader)) is None)
    for one in (behind, other):
        cluster.brokers[one].loop.pause(100)
    cluster.network.cuts ^= {(behind, leader), (other, leader)}
    cluster.start(leader)
    wait(500)
    cluster.end(leader)
    wait(1_000)
    assert (state := cluster.state(place.key)) is not None
    assert state.leader == other
    cluster.heal()
    wait(3_000)
    cluster.checks.at_the_end()


def test_who_joins_has_what_a_leader_that_was_killed_had(monkeypatch: pytest.MonkeyPatch) -> None:
    a_leader_is_back_before_anybody_saw_it_go()
    watermark_is_enough(monkeypatch)
    with pytest.raises(Violation, match="without all that is committed"):
        a_leader_is_back_before_anybody_saw_it_go()


def lower_min_isr_behind_the_controllers_back() -> int:
    """A leader alone in its ISR hears of a lower min ISR, the controller does not; then the leader dies, and the one who left is back.

    How many records were acknowledged to it meanwhile.
    """
    cluster = SimCluster(1)
    wait = partial(let_pass, cluster)
    wait(400)
    (elected,) = [one for one, broker in cluster.brokers.items() if broker.controller.is_active]
    leader, follower = sorted(cluster.brokers.keys() - {elected})
    at = cluster.brokers[leader]
    at.topics.create(at.topics.decide(NewTopic(name="x", assignments={0: (leader, follower)})), lambda _error: None)
    wait(200)
    place = next(one for one in cluster.assigned if one.key.topic == "x")
    cluster.end(follower)
    wait(600)
    state = cluster.state(place.key)
    assert state is not None
    assert (state.isr, state.extra["eligible"]) == ((leader,), [follower])
    deaf = cluster.brokers[elected]
    deaf._configs._changed = lambda _topics: None
    deaf.controller._topic_configs = deaf.controller.cluster.image.topic_configs = {}
    path, lower = layout.topic_config_path("x"), {"min.insync.replicas": "1"}
    at.topics.change_config(path, lambda: at.topics.decide_config(at.image.topics["x"], lower), lambda _error: None)
    wait(100)
    cluster.clients.write_once(leader, place)
    wait(100)
    acknowledged = len(cluster.checks.acked)
    cluster.end(leader)
    cluster.start(follower)
    wait(1_000)
    state = cluster.state(place.key)
    assert state is not None
    assert state.leader == follower
    return acknowledged


def test_leader_and_controller_may_hear_of_a_lower_min_isr_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lower_min_isr_behind_the_controllers_back() == 0
    eligible_are_forgotten(monkeypatch)
    with pytest.raises(Violation, match="without all that is committed"):
        lower_min_isr_behind_the_controllers_back()


class Least(random.Random):
    """Chance is against it."""

    def randint(self, a: int, b: int) -> int:
        return a


Story = Callable[[SimCluster, int, str], None]


def fails_while_it_runs(cluster: SimCluster, leader: int, path: str) -> None:
    at = cluster.brokers[leader]
    cluster.disks[leader].broken.add(path)
    cluster.clients.write_once(leader, next(one for one in cluster.assigned if one.key == (TOPIC, 0)), acks=1)
    cluster.run_until(lambda: path in at.directories.offline)
    cluster.disks[leader].broken.clear()
    cluster.end(leader)


def fails_at_the_last_flush(cluster: SimCluster, leader: int, path: str) -> None:
    at = cluster.brokers.pop(leader)
    cluster.disks[leader].broken.add(path)
    at.close()
    cluster.disks[leader].broken.clear()
    cluster.checks.died(leader, power=False)


def is_away_for_a_start(cluster: SimCluster, leader: int, path: str) -> None:
    cluster.end(leader)
    cluster.disks[leader].broken.add(path)
    cluster.start(leader)
    let_pass(cluster, 1_000)
    cluster.disks[leader].broken.clear()
    cluster.end(leader)


def is_taken_out(cluster: SimCluster, leader: int, path: str) -> None:
    """Of the configuration: the broker knows nothing of it any more."""
    at = cluster.brokers.pop(leader)
    at.close()
    cluster.checks.died(leader, power=False)
    cluster.paths = tuple(one for one in cluster.paths if one != path)


def a_disk_of_the_only_one_in_sync(story: Story) -> None:
    """What it had not synced is gone, or all of it, and so is the process that may have seen it fail."""
    cluster = SimCluster(1, disks=2)
    wait = partial(let_pass, cluster)
    wait(400)
    place = next(one for one in cluster.assigned if one.key == (TOPIC, 0))
    leader, *others = cluster.assigned[place]
    at = cluster.brokers[leader]
    log = at.partitions.get(*place.key).log
    cluster.clients.write_once(leader, place)
    wait(20)
    for other in others:
        cluster.end(other)
    cluster.run_until(lambda: cluster.isr(place) == {leader})
    assert log.recovery_point < log.high_watermark, "what is committed was not synced here"
    path, paths = at.directories.home(place.key).path, cluster.paths
    story(cluster, leader, path)
    cluster.disks[leader].lose_unsynced(path, Least())
    cluster.checks.forgot(leader)
    cluster.start(leader)
    cluster.paths = paths
    wait(2_000)
    assert (state := cluster.state(place.key)) is not None
    cluster.heal()
    wait(3_000)
    cluster.checks.at_the_end()
    assert state.leader == -1, "nobody trusted it"


def distrusts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_distrust", lambda *_arguments: None)


def misses_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    take, read = generation.take_generation, generation._read

    def take_as_many(files: Files, states: Iterable[DirectoryState], *rest: Any) -> str:
        there = list(states)

        def read_as_many(*arguments: Any) -> tuple[str, str, str]:
            known = read(*arguments)
            return (*known[:2], str(len(there))) if known[0] else known

        monkeypatch.setattr(generation, "_read", read_as_many)
        return take(files, there, *rest)

    monkeypatch.setattr(simulated_broker, "take_generation", take_as_many)


@pytest.mark.parametrize(
    ("story", "breakage"),
    [
        (fails_while_it_runs, distrusts_nothing),
        (fails_at_the_last_flush, distrusts_nothing),
        (is_away_for_a_start, misses_no_directory),
        (is_taken_out, misses_no_directory),
    ],
)
def test_who_may_have_lost_a_disk_is_not_trusted(
    story: Story, breakage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_disk_of_the_only_one_in_sync(story)
    breakage(monkeypatch)
    with pytest.raises(Violation, match="without all that is committed"):
        a_disk_of_the_only_one_in_sync(story)
