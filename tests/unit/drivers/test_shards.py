"""Shards of coordinators on partitions with replicas: what was read above the high watermark is nobody's knowledge yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.support.transaction_requests import Stamp
from tests.unit.drivers.replicated import GROUPS, TRANSACTIONS, Replicated
from tests.unit.handlers.test_transaction_apis import T0, opened, produce

from penstock.base.errors import StorageError
from penstock.coordinator.groups.messages import Asker, Commit
from penstock.drivers.shards import LOAD_RETRY_MS, READ_RETRY_MS

LOADING = "coordinator_load_in_progress"


@pytest.fixture
def world(tmp_path: Path) -> Replicated:
    return Replicated(tmp_path)


def prepared(world: Replicated) -> Stamp:
    """A commit that only its coordinator has written down, in the epoch before this one."""
    stamp = opened(world)
    assert produce(world, stamp) == "none"
    world.lead(TRANSACTIONS)
    heard = world.end_transaction("x", stamp.producer_id, stamp.epoch, commit=True)
    assert world.log(TRANSACTIONS).high_watermark < world.log(TRANSACTIONS).end_offset
    world.lead(TRANSACTIONS)
    assert heard == []
    return stamp


def test_an_end_that_may_be_lost_is_not_carried_out_by_who_reads_it(world: Replicated) -> None:
    stamp = prepared(world)
    assert world.log(T0).end_offset == 1, "no marker: another leader may not know of the end"
    assert world.requests.end("x", stamp, commit=True, version=5).error == LOADING
    assert world.requests.init("x").error == LOADING
    world.fetch_all(TRANSACTIONS)
    assert world.state() == "PrepareCommit"
    assert world.log(T0).end_offset == 2, "nobody had to ask"
    world.fetch_all(TRANSACTIONS)
    assert world.state() == "CompleteCommit"


def test_a_partition_whose_adding_may_be_lost_is_not_called_added(world: Replicated) -> None:
    stamp = opened(world)
    world.lead(TRANSACTIONS)
    producer = {"producer_id": stamp.producer_id, "producer_epoch": stamp.epoch}
    answer = world.send(25, 3, transactional_id="x", group_id="g", **producer)
    world.lead(TRANSACTIONS)
    assert not answer.is_there
    assert world.requests.add_offsets("x", stamp, "g") == LOADING
    assert world.requests.add_partitions("x", stamp, [T0]) == {T0: LOADING}
    assert set(world.requests.verify("x", stamp, [T0, GROUPS]).values()) == {LOADING}
    world.fetch_all(TRANSACTIONS)
    assert answer.read().error_code == ErrorCode.not_coordinator, "who asked the epoch before asks again"
    assert world.requests.add_offsets("x", stamp, "g") == "none"
    assert set(world.requests.verify("x", stamp, [T0, GROUPS]).values()) == {"none"}


def test_offsets_that_may_be_lost_are_not_given_out(world: Replicated) -> None:
    world.lead(GROUPS)
    decision, _ = world.groups.find("g").shard.commit("g", Asker("", None, -1), [Commit("t", 0, 5, -1, "")])
    world.groups.run(world.groups.find("g"), decision)
    world.lead(GROUPS)
    assert world.log(GROUPS).high_watermark < world.log(GROUPS).end_offset
    assert world.requests.committed("g", T0, require_stable=False) == (LOADING, -1)
    world.fetch_all(GROUPS)
    assert world.requests.committed("g", T0, require_stable=False) == ("none", 5)


def test_offsets_of_a_topic_that_went_while_its_groups_were_read_are_forgotten(world: Replicated) -> None:
    world.create_topic("u")
    world.lead(GROUPS)
    for topic in ("t", "u"):
        decision, _ = world.groups.find("g").shard.commit("g", Asker("", None, -1), [Commit(topic, 0, 5, -1, "")])
        world.groups.run(world.groups.find("g"), decision)
    world.lead(GROUPS)
    again = world.image.topics.pop("u")
    world.groups.follow(["t", "u"])
    world.image.topics["u"] = again  # one of the same name: the old offsets say nothing of it
    world.fetch_all(GROUPS)
    world.fetch_all(GROUPS)
    assert world.requests.committed("g", T0, require_stable=False) == ("none", 5)
    assert world.requests.committed("g", ("u", 0), require_stable=False) == ("none", -1)


@pytest.mark.parametrize(("has_heard", "kept"), [(False, 57), (True, -1)])
def test_only_who_coordinated_while_a_topic_went_forgets_the_offsets_of_one_made_again(
    world: Replicated, has_heard: bool, kept: int
) -> None:
    """Who has just taken over has, from its coordinator before, what counts for the new one."""
    world.lead(GROUPS)
    decision, _ = world.groups.find("g").shard.commit("g", Asker("", None, -1), [Commit("t", 0, 57, -1, "")])
    world.groups.run(world.groups.find("g"), decision)
    world.fetch_all(GROUPS)
    world.lead(GROUPS)
    world.image.told += 2 if has_heard else 1
    again = world.image.topics.pop("t")
    world.groups.follow(["t"])
    world.image.topics["t"] = again
    for _ in range(2):
        world.fetch_all(GROUPS)
    assert world.requests.committed("g", T0, require_stable=False) == ("none", kept)


def test_a_topic_that_went_as_its_groups_were_taken_over_is_forgotten(world: Replicated) -> None:
    world.lead(GROUPS)
    decision, _ = world.groups.find("g").shard.commit("g", Asker("", None, -1), [Commit("t", 0, 57, -1, "")])
    world.groups.run(world.groups.find("g"), decision)
    world.fetch_all(GROUPS)
    world.lead(GROUPS)
    world.image.told += 1
    del world.image.topics["t"]
    world.groups.follow(["t"])
    world.fetch_all(GROUPS)
    assert "g" not in world.groups.find("g").shard.groups


def test_a_shard_whose_log_cannot_be_read_for_a_moment_is_read_a_second_later(
    world: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(world)
    with monkeypatch.context() as patch:

        def fail(*_: object, **_named: object) -> None:
            raise StorageError("no descriptor is left")

        patch.setattr(type(world.log(TRANSACTIONS)), "read", fail)
        world.lead(TRANSACTIONS)
    world.fetch_all(TRANSACTIONS)
    assert world.requests.init("x").error == LOADING
    world.loop.advance(READ_RETRY_MS)
    assert world.state() == "PrepareCommit"


def test_a_shard_waits_as_long_as_its_follower_takes(world: Replicated) -> None:
    prepared(world)
    world.loop.advance(31_234)
    assert world.requests.init("x").error == LOADING
    assert world.log(T0).end_offset == 1
    world.fetch_all(TRANSACTIONS)
    world.loop.advance(LOAD_RETRY_MS)
    assert world.state() == "PrepareCommit"
    assert world.log(T0).end_offset == 2


def test_a_shard_whose_partition_another_broker_leads_waits_no_longer(world: Replicated) -> None:
    prepared(world)
    (led,) = world.transactions.shards
    world.lead(TRANSACTIONS, leader=2)
    world.at(TRANSACTIONS).follow(world.log(TRANSACTIONS).end_offset, 0)
    world.holdings.changed(TRANSACTIONS)
    world.loop.advance(20_000)
    assert world.requests.init("x").error == "not_coordinator"
    assert world.log(T0).end_offset == 1
    assert not led.is_loaded
    assert world.services.produce_waits.purgatory.waiting == 0


def test_of_several_epochs_read_only_the_last_acts(world: Replicated) -> None:
    prepared(world)
    world.lead(TRANSACTIONS)
    world.lead(TRANSACTIONS)
    before = world.log(TRANSACTIONS).end_offset
    world.fetch_all(TRANSACTIONS)
    world.fetch_all(TRANSACTIONS)
    world.loop.advance(20_000)
    assert world.state() == "CompleteCommit"
    assert world.log(T0).end_offset == 2, "one marker"
    assert world.log(TRANSACTIONS).end_offset == before + 1, "one completion"
