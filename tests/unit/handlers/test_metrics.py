"""What is counted on the way of a request."""

from __future__ import annotations

from pathlib import Path

from tests.unit.handlers.test_produce_and_fetch import batch, fetch, produce
from tests.unit.handlers.world import World


def test_a_topic_counts_what_went_in_and_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", partitions=2)
    first, second = batch(b"a", b"b"), batch(b"c")
    produce(world, {("t", 0): first, ("t", 1): second})
    fetch(world, {("t", 0): 0})
    traffic = world.partitions.traffic.of("t")
    assert (traffic.messages_in, traffic.bytes_in, traffic.produce_requests) == (3, len(first) + len(second), 2)
    assert (traffic.bytes_out, traffic.fetch_requests) == (len(first), 1)
    assert (traffic.bytes_rejected, traffic.failed_produce_requests) == (0, 0)


def test_what_is_too_large_is_rejected_at_the_size_it_came_in(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", max_message_bytes="100")
    refused = batch(bytes(200))
    produce(world, {("t", 0): refused})
    traffic = world.partitions.traffic.of("t")
    assert (traffic.bytes_rejected, traffic.bytes_in, traffic.produce_requests) == (len(refused), 0, 1)
    assert traffic.failed_produce_requests == 0


def test_the_sum_outlives_a_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t")
    produce(world, {("t", 0): batch(b"a")})
    world.partitions.remove(next(iter(world.partitions)).topic_partition)
    assert world.partitions.traffic.topics() == {}
    assert world.partitions.traffic.total().messages_in == 1


def test_requests_are_timed_by_stage(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t")
    produce(world, {("t", 0): batch(b"a")}, version=9)
    fetch(world, {("t", 0): 1}, wait_ms=300, bytes_min=1)
    world.loop.advance(400)
    times = world.dispatcher.times
    assert times[0].requests == {9: 1}
    assert (times[0].total.count, times[0].remote.count) == (1, 0)
    assert times[1].remote.count == 1
    assert 300_000 <= times[1].remote.sum_us <= 301_000
    assert times[1].total.sum_us == times[1].remote.sum_us + times[1].local.sum_us


def test_an_answer_that_is_an_error_is_counted_by_its_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send(12, 3, group_id="", generation_id=1, member_id="m", group_instance_id=None)
    assert world.dispatcher.times[12].errors == {"invalid_group_id": 1}
