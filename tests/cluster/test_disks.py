"""Disks of a cluster that fail, and machines that lose their power: what was acknowledged is on the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_load import (
    FINAL_READER,
    QUICK_TO_NOTICE,
    WAIT_SECONDS,
    Load,
    leader_of,
    look,
    make_topic,
    read_everything,
    wait_for_equal_replicas,
    wait_for_isr,
)
from tests.support.history import History
from tests.support.processes import wait_until
from tests.support.synced_broker import SyncedCluster

from penstock.app import generation
from penstock.testing import BrokerProcess, Cluster

pytestmark = pytest.mark.long


class TwoDisks(BrokerProcess):
    def _all_settings(self) -> dict[str, str]:
        second = self.data.with_name(f"{self.data.name}-second")
        return {**super()._all_settings(), "log.dirs": f"{self.data},{second}"}


class TwoDisksEach(Cluster):
    _make_broker = TwoDisks


@pytest.fixture
def two_disks_each() -> Iterator[Cluster]:
    with TwoDisksEach(**QUICK_TO_NOTICE, log_flush_offset_checkpoint_interval_ms=500) as cluster:
        yield cluster


def test_a_log_directory_fails_and_what_it_led_is_led_elsewhere(two_disks_each: Cluster) -> None:
    cluster, topic, partitions = two_disks_each, "two-disks", 6
    make_topic(cluster, topic, partitions)
    wait_for_isr(cluster, topic, 3)
    history = History()
    victim = leader_of(cluster, topic)
    broker = cluster.brokers[victim]
    with Load(cluster, topic, history, partitions) as load:
        load.wait_for_more()
        (disk,) = (one for one in broker.log_directories if (one / f"{topic}-0").is_dir())
        lost = {number for number in range(partitions) if (disk / f"{topic}-{number}").is_dir()}
        assert 0 < len(lost) < partitions
        kept = set(range(partitions)) - lost
        pid = broker.pid
        disk.rename(disk.with_name(f"{disk.name}-gone"))
        disk.touch()  # whoever opens something below it is told that it is no directory

        def has_moved() -> bool:
            found = look(cluster, topic)
            return all(victim not in found[one].isrs and found[one].leader not in (victim, -1) for one in lost)

        wait_until(has_moved, seconds=WAIT_SECONDS, what="others lead what the directory held")
        (other,) = (one for one in broker.log_directories if one != disk)
        assert not (other / generation.FILE_NAME).exists(), "nobody trusts its logs when it is back"
        load.wait_for_more(100)
        found = look(cluster, topic)
        assert all(victim in found[one].isrs for one in kept), "its other directory goes on"
        assert broker.pid == pid
        cluster.kill(victim)
        disk.unlink()
        cluster.start_broker(victim)  # with an empty disk in its place
        load.wait_for_more()
        wait_for_isr(cluster, topic, 3)
    read_everything(cluster, topic, history, partitions)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic, partitions)


@pytest.fixture
def forgetful() -> Iterator[SyncedCluster]:
    with SyncedCluster(**QUICK_TO_NOTICE, log_flush_interval_ms=200, log_index_size_max_bytes=100_000) as cluster:
        yield cluster


@pytest.mark.parametrize("is_felt_first", [True, False])
def test_power_is_cut_at_one_of_three_in_turns_and_nothing_acknowledged_is_lost(
    forgetful: SyncedCluster, is_felt_first: bool
) -> None:
    """Each comes back with what it had synced, the one of them that leads first: before the others took notice, or after."""
    cluster, topic = forgetful, "power"
    make_topic(cluster, topic)
    wait_for_isr(cluster, topic, 3)
    history = History()
    forgotten_bytes = 0
    with Load(cluster, topic, history) as load, Load(cluster, topic, history, producer=2) as other:
        for _ in range(6):
            load.wait_for_more()
            victim = leader_of(cluster, topic)
            before = _size(cluster.brokers[victim].data, topic)
            cluster.cut_power(victim)
            forgotten_bytes += max(before - _size(cluster.brokers[victim].data, topic), 0)
            if is_felt_first:
                wait_until(
                    lambda victim=victim: leader_of(cluster, topic) != victim,  # type: ignore[misc]
                    seconds=WAIT_SECONDS,
                    what="another one leads",
                )
                load.wait_for_more(100)
            cluster.start_broker(victim)
            wait_for_isr(cluster, topic, 3)
        load.wait_for_more()
        other.wait_for_more()
    assert forgotten_bytes > 0, "the power cuts cost something"
    read_everything(cluster, topic, history)
    assert history.anomalies(FINAL_READER) == []
    wait_for_equal_replicas(cluster, topic)


def _size(data: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in data.glob(f"{topic}-*/*.log"))
