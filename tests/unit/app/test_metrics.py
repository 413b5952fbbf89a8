"""What a broker tells of itself under Kafka's names, while things change and fail."""

from __future__ import annotations

from pathlib import Path

from tests.unit.drivers.test_failures import TwoDirectories
from tests.unit.handlers.test_produce_and_fetch import batch, produce
from tests.unit.handlers.world import World

from penstock.app.metrics import BrokerMetrics
from penstock.base.metrics import lines
from penstock.drivers.loop_watch import LoopWatch
from penstock.server.listener import Server


def metrics(world: World) -> BrokerMetrics:
    return BrokerMetrics(
        clock=world.clock,
        services=world.services,
        directories=world.directories,
        dispatcher=world.dispatcher,
        server=Server(
            world.dispatcher.dispatch,
            frame_bytes_max=1,
            connections_max=1,
            backlog=1,
            run_in_thread=lambda job, done: None,
        ),
        watch=LoopWatch(world.loop, world.clock),
    )


def value(world: World, name: str) -> str:
    (line,) = [line for line in lines(metrics(world)()) if line.startswith(f"{name} ")]
    return line.split()[1]


def test_a_directory_that_fails_is_counted_once(tmp_path: Path) -> None:
    two = TwoDirectories(tmp_path, flush_messages="1")
    assert value(two.world, "kafka_log_logmanager_offlinelogdirectorycount") == "0"
    two.break_second()
    produce(two.world, {("t", 1): batch(b"a")})
    two.world.loop.turn()
    assert value(two.world, "kafka_log_logmanager_offlinelogdirectorycount") == "1"
    assert value(two.world, "kafka_server_replicamanager_offlinereplicacount") == "1"


def test_a_scrape_goes_on_though_everything_it_tells_of_changes_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("t", partitions=3)
    for version in (9, 10):
        produce(world, {("t", 0): batch(b"a")}, version=version)
    told = []
    for number, line in enumerate(lines(metrics(world)())):
        told.append(line)
        # A slice may end at any line: requests in new versions, new errors, new topics come before the next.
        times = world.dispatcher.times[0]
        times.received(1000 + number)
        times.failed(f"error_{number}")
        if number < 500 and number % 10 == 0:
            world.create_topic(f"t{number}")
    assert told[-1].startswith("penstock_uptime_seconds ")
