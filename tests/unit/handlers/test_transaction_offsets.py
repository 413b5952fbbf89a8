"""Offsets in transactions over the wire, in a broker without sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.handlers.test_transaction_apis import T0, Served, opened

from penstock.protocol.group_records import OffsetKey, OffsetValue


@pytest.fixture
def world(tmp_path: Path) -> Served:
    return Served(tmp_path)


# Offsets in transactions.
def test_offsets_in_a_transaction_are_unstable_until_it_ends(world: Served) -> None:
    stamp = world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=3) == "invalid_txn_state"
    assert world.requests.add_offsets("x", stamp, "g") == "none"
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=3) == "none"
    assert world.requests.committed("g", T0, require_stable=True) == ("unstable_offset_commit", -1)
    assert world.requests.committed("g", T0, require_stable=False) == ("none", -1)
    assert world.requests.end("x", stamp, commit=True, version=4).error == "none"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 5)


def test_what_an_aborted_transaction_committed_never_counts(world: Served) -> None:
    stamp = world.requests.init("x")
    stamp = world.requests.end("x", stamp, commit=False, version=5)
    assert world.requests.commit_offset("x", stamp, "g", T0, 5, version=5) == "none"
    stamp = world.requests.end("x", stamp, commit=False, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)
    assert "g" not in world.groups.find("g").shard.groups, "a group that never was leaves nothing"


def test_a_note_that_is_too_long_leaves_nothing_pending(world: Served) -> None:  # KAFKA-16371, 15784
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", T0, 5, version=5, metadata="m" * 5000)
    assert said == "offset_metadata_too_large"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)


def test_the_offset_written_last_counts_whichever_transaction_ends_last(world: Served) -> None:
    first, second = world.requests.init("x"), world.requests.init("y")
    assert world.requests.commit_offset("x", first, "g", T0, 1, version=5) == "none"
    assert world.requests.commit_offset("y", second, "g", T0, 2, version=5) == "none"
    world.requests.end("y", second, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True)[0] == "unstable_offset_commit"
    world.requests.end("x", first, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 2)


def test_a_plain_commit_beats_what_a_transaction_wrote_before(world: Served) -> None:
    stamp = world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 1, version=5) == "none"
    shard = world.groups.find("g").shard
    shard.replay(OffsetKey("g", *T0), OffsetValue(9, -1, "", 0))
    world.requests.end("x", stamp, commit=True, version=5)
    assert world.requests.committed("g", T0, require_stable=True) == ("none", 9)


def test_a_member_of_another_generation_commits_nothing_in_a_transaction(world: Served) -> None:  # KIP-447
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", T0, 1, version=5, generation=3, member_id="m")
    assert said == "illegal_generation"
    assert world.requests.committed("g", T0, require_stable=True) == ("none", -1)


def test_a_fenced_producer_commits_no_offsets(world: Served) -> None:
    stamp = world.requests.init("x")
    world.requests.init("x")
    assert world.requests.commit_offset("x", stamp, "g", T0, 1, version=5) == "invalid_producer_epoch"


@pytest.mark.parametrize("version", [3, 5])
def test_a_group_without_a_name_has_no_offsets_in_transactions(world: Served, version: int) -> None:
    stamp = opened(world, T0)
    assert world.requests.add_offsets("x", stamp, "") == "none"
    assert world.requests.commit_offset("x", stamp, "", T0, 1, version=version) == "invalid_group_id"
    assert world.log(("__consumer_offsets", 0)).end_offset == 0


def test_a_missing_partition_has_no_offset(world: Served) -> None:
    stamp = world.requests.init("x")
    said = world.requests.commit_offset("x", stamp, "g", ("t", 7), 1, version=5)
    assert said == "unknown_topic_or_partition"


@pytest.mark.parametrize("committed_before", [False, True])
@pytest.mark.parametrize("deleted", ["topic", "group", "offset"])
def test_what_is_deleted_in_the_middle_of_a_transaction_is_not_brought_back_by_its_commit(
    world: Served, deleted: str, committed_before: bool
) -> None:
    world.create_topic("gone", 1)
    stamp, place = world.requests.init("x"), ("gone", 0)
    if committed_before:
        assert world.requests.commit_offset("x", stamp, "g", place, 3, version=5) == "none"
        stamp = world.requests.end("x", stamp, commit=True, version=5)
    assert world.requests.commit_offset("x", stamp, "g", place, 5, version=5) == "none"
    assert world.requests.commit_offset("x", stamp, "g", T0, 6, version=5) == "none"
    led = world.groups.find("g")
    if deleted == "topic":
        world.services.topics.delete(world.image.topics["gone"], lambda error: None)
        world.loop.turn()
    elif deleted == "group":
        world.groups.run(led, led.shard.delete("g"))
    else:
        world.groups.run(led, led.shard.delete_offsets("g", [place])[0])
    assert world.requests.committed("g", place, require_stable=True) == ("none", -1), "nothing is under way there"
    assert world.requests.end("x", stamp, commit=True, version=5).error == "none"
    kept = -1 if deleted == "group" else 6
    for _ in ("as it stands", "as the log is read again"):
        assert world.requests.committed("g", place, require_stable=True) == ("none", -1)
        assert world.requests.committed("g", T0, require_stable=True) == ("none", kept)
        world.partitions.get("__consumer_offsets", 0).leader_epoch += 1
        world.groups.follow({"__consumer_offsets"})
        world.loop.turn()
