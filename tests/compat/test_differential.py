"""The same requests to Apache Kafka and to Penstock, field by field. Differences that are meant stand in `KNOWN`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.compat.differential_cases import COMPACT, DATA, EMPTY, every_case, fill, setup
from tests.compat.known_differences import KNOWN
from tests.compat.random_requests import cases
from tests.support import judges
from tests.support.differential import Case, Pair
from tests.support.kafka_jvm import VERSIONS, KafkaBroker
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
    for case in setup():
        pair.run(case)
    pair.learn(DATA, COMPACT, EMPTY)
    for case in (*fill(), *every_case()):
        pair.run(case)
    result = pair.result
    assert result.differences == [], f"{len(result.differences)} differences:\n" + "\n".join(result.differences)
    assert result.requests > 300
    unused = [
        known for number, known in enumerate(KNOWN) if number not in result.used and known.kafka in ("", result.kafka)
    ]
    assert unused == [], "differences that are no longer there stand in the table"


@pytest.mark.long
def test_random_requests_get_the_same_answers(pair: Pair) -> None:
    """After the listed ones: what those left behind is alike on both sides."""
    for case in setup():
        pair.run(case)
    pair.learn(DATA, COMPACT, EMPTY)
    for case in fill():
        pair.run(case)

    @settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
    @given(cases())
    def same(case: Case) -> None:
        pair.result.differences.clear()
        pair.run(case)
        assert pair.result.differences == []

    same()
