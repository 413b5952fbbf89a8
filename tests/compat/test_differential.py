"""The same requests to Apache Kafka and to Penstock, field by field. Differences that are meant stand in `KNOWN`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.compat.differential_cases import alike, every_case, fill, setup
from tests.compat.differential_names import COMPACT, DATA, EMPTY
from tests.compat.group_lives import CLIENTS, LIVES, TOPIC, story
from tests.compat.known_differences import KNOWN
from tests.compat.random_requests import cases
from tests.support import judges
from tests.support.differential import Case, Pair
from tests.support.kafka_jvm import VERSIONS, KafkaBroker
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.wire import Wire


@pytest.fixture(scope="module", params=VERSIONS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    version: str = request.param
    judges.require(f"kafka-{version}")
    directory: Path = tmp_path_factory.mktemp(f"differential-{version}")
    settings = {
        "auto_create_topics_enable": "false",
        "group_initial_rebalance_delay_ms": "0",
        "offsets_topic_num_partitions": "1",
        "log_cleaner_dedupe_buffer_size": str(8 * 1024 * 1024),
    }
    kafka = KafkaBroker(
        version, directory / "kafka", auto_create_topics_enable="false", num_recovery_threads_per_data_dir=2
    )
    ours = ServedBroker(
        directory, offsets_topic_replication_factor="1", num_recovery_threads_per_data_dir="2", **settings
    )
    with kafka, ours, Wire(kafka.bootstrap_servers) as theirs, Wire(ours.bootstrap_servers) as mine:
        yield Pair(version, theirs, mine, KNOWN)
        kafka.kill9()


def test_the_same_request_gets_the_same_answer(pair: Pair) -> None:
    _prepare(pair)
    for case in (*fill(), *every_case()):
        pair.run(case)
    result = pair.result
    assert result.differences == [], f"{len(result.differences)} differences:\n" + "\n".join(result.differences)
    assert result.requests > 300
    unused = [
        known for number, known in enumerate(KNOWN) if number not in result.used and known.kafka in ("", result.kafka)
    ]
    assert unused == [], "differences that are no longer there stand in the table"


def _prepare(pair: Pair) -> None:
    pair.run(alike())
    for wire in (pair.kafka, pair.penstock):
        wait_until(partial(_is_alike, wire), seconds=60, what="a new topic is told of the cluster's configuration")
    for case in setup():
        pair.run(case)
    pair.learn(DATA, COMPACT, EMPTY)


def _is_alike(wire: Wire) -> bool:
    """3.9's controller says that a cluster's configuration is changed before new topics hear of it."""
    topic = {"name": DATA, "num_partitions": 1, "replication_factor": 1}
    (made,) = wire.ask(19, 7, {"topics": [topic], "timeout": 30_000, "validate_only": True})["topics"]
    return any(one["name"] == "min.insync.replicas" and one["config_source"] == 3 for one in made["configs"])


@pytest.mark.parametrize("pair", ["4.3"], indirect=True)
def test_groups_live_the_same_lives(pair: Pair) -> None:
    """Every state, every answer that depends on one: dynamic and static members, clients of three generations.

    4.3 only: 3.9 tells no assignments while a group rebalances, and forgets an empty one with its last offset.
    """
    differences = []
    for wire in (pair.kafka, pair.penstock):
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
        wire.ask(19, 7, {"topics": [topic], "timeout": 30_000})
        wait_until(partial(_is_coordinated, wire), seconds=60, what="groups have a coordinator")
    pair.learn(TOPIC)
    for clients, versions in CLIENTS.items():
        for life in LIVES:
            if life == "static" and not versions.has_static:
                continue
            theirs, ours = (story(wire.address, life, clients) for wire in (pair.kafka, pair.penstock))
            differences += [
                f"{life}, {clients} clients, {step}: Kafka {expected}, Penstock {said}"
                for (step, expected), (_, said) in zip(theirs, ours, strict=True)
                if said != expected
            ]
    assert differences == [], "\n".join(differences)


def _is_coordinated(wire: Wire) -> bool:
    found = wire.ask(10, 2, {"key": "life", "key_type": 0})
    listed = wire.ask(15, 5, {"groups": ["life"]})["groups"]
    return bool(found["error_code"] == "none" and listed[0]["error_code"] == "none")


@pytest.mark.parametrize("pair", ["4.3"], indirect=True)
def test_random_requests_get_the_same_answers(pair: Pair) -> None:
    """4.3 only: a request with two mistakes is told of the first one that it looks for, and 3.9 looks in another order."""
    _prepare(pair)
    for case in fill():
        pair.run(case)

    @settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
    @given(cases())
    def same(case: Case) -> None:
        pair.result.differences.clear()
        pair.run(case)
        assert pair.result.differences == []

    same()
