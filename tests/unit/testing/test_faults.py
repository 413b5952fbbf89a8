"""Faults on demand, at the dispatcher, on a manual clock."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.support.wire import build, has_schema
from tests.unit.handlers.test_produce_and_fetch import batch
from tests.unit.handlers.world import Answer, World, shape

from penstock.handlers.api import Peer
from penstock.protocol.errors import MalformedMessageError
from penstock.server.dispatch import Outcome
from penstock.testing.faults import Faults

_SECOND = timedelta(seconds=1)
PEER = Peer("PLAINTEXT", "127.0.0.1", None)


class Faulty:
    def __init__(self, path: Path) -> None:
        self.world = World(path)
        self.world.create_topic("t")
        self.faults = Faults()
        loop = self.world.loop
        self.dispatch = self.faults.wrap(
            self.world.dispatcher.dispatch, lambda seconds, call: loop.call_later(int(seconds * 1000), call)
        )

    def produce(self, version: int = 9) -> Outcome:
        make = shape(0, version)
        partition = make.topic_data.partition_data.make(index=0, records=batch(b"a"))
        topic = make.topic_data.make(name="t", topic_id=None, partition_data=(partition,))
        request = make.make(transactional_id=None, acks=1, timeout=_SECOND, topic_data=(topic,))
        return self.dispatch(self.world.frame(0, version, request), PEER)

    def heartbeat(self) -> Outcome:
        request = shape(12, 3).make(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
        return self.dispatch(self.world.frame(12, 3, request), PEER)

    @property
    def end_offset(self) -> int:
        (partition,) = self.world.partitions
        return partition.log.end_offset


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path)


def test_a_failing_request_is_not_handled_and_has_its_error(faulty: Faulty) -> None:
    faulty.faults.fail("Produce", "not_leader_or_follower", times=2)
    for _ in range(2):
        answer = Answer(0, 9, 9, faulty.produce()).read()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.not_leader_or_follower
    assert faulty.end_offset == 0
    assert Answer(0, 9, 9, faulty.produce()).read().responses[0].partition_responses[0].error_code == 0
    assert faulty.end_offset == 1


def test_an_answer_with_one_error_says_it(faulty: Faulty) -> None:
    faulty.faults.fail("heartbeat", "REBALANCE_IN_PROGRESS")
    assert Answer(12, 3, 4, faulty.heartbeat()).read().error_code == ErrorCode.rebalance_in_progress


def test_every_version_of_an_answer_can_be_refused(faulty: Faulty) -> None:
    asked: dict[int, dict[str, object]] = {
        9: {"group_id": "g", "topics": (), "groups": (), "require_stable": False},
        10: {"key": "g", "key_type": 0, "coordinator_keys": ("g", "h")},
        16: {"states_filter": (), "types_filter": ()},
        25: {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "group_id": "g"},
    }
    for key, values in asked.items():
        api = faulty.world.apis[key]
        for version in range(api.low, api.high + 1):
            faulty.faults.fail(api.name, "not_coordinator")
            outcome = faulty.dispatch(faulty.world.frame(key, version, shape(key, version).make(**values)), PEER)
            answer = Answer(key, version, api.flexible_from, outcome).read()
            named = [answer] if hasattr(answer, "error_code") else getattr(answer, "coordinators", ())
            assert all(one.error_code == ErrorCode.not_coordinator for one in named)


def errors_in(answer: object) -> list[tuple[str, ErrorCode]]:
    """Every error of an answer, with what it is about."""
    found = []
    for field in dataclasses.fields(answer) if dataclasses.is_dataclass(answer) else ():
        value = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            about = [str(getattr(answer, name)) for name in ABOUT if hasattr(answer, name)]
            found.append(("".join(about), value))
        elif isinstance(value, tuple):
            found += [one for element in value for one in errors_in(element)]
    return found


ABOUT = ("name", "topic", "group_id", "resource_name", "partition_index", "partition")
EACH: dict[int, tuple[dict[str, Any], list[str]]] = {
    2: ({"topics": [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 3}]}]}, ["0", "3"]),
    8: ({"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 2}]}]}, ["2"]),
    9: (
        {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": [1, 2]}],
            "groups": [{"group_id": "g", "topics": []}],
        },
        ["1", "2"],
    ),
    15: ({"groups": ["g", "h"]}, ["g", "h"]),
    19: ({"topics": [{"name": "t", "configs": [{"name": "a", "value": "b"}]}]}, ["t"]),
    20: ({"topics": [{"name": "t"}, {"name": "u"}], "topic_names": ["t", "u"]}, ["t", "u"]),
    21: ({"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}, ["0"]),
    23: ({"topics": [{"topic": "t", "partitions": [{"partition": 4}]}]}, ["4"]),
    24: ({"v3_and_below_topics": [{"name": "t", "partitions": [1, 2]}]}, ["1", "2"]),
    28: ({"topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}, ["0"]),
    32: ({"resources": [{"resource_type": 2, "resource_name": "t"}]}, ["t"]),
    37: ({"topics": [{"name": "t", "count": 3}]}, ["t"]),
    42: ({"groups_names": ["g", "h"]}, ["g", "h"]),
}


@pytest.mark.parametrize("key", EACH)
def test_an_answer_with_many_errors_says_it_of_each_thing_asked_about(faulty: Faulty, key: int) -> None:
    values, about = EACH[key]
    api = faulty.world.apis[key]
    for version in range(api.low, api.high + 1):
        if not has_schema(key, version):
            continue
        faulty.faults.fail(api.name, "not_controller")
        request = build(load_request_schema(key, version), values)
        outcome = faulty.dispatch(faulty.world.frame(key, version, request), PEER)
        answer = Answer(key, version, api.flexible_from, outcome).read()
        told = errors_in(answer)
        assert {error for _, error in told} == {ErrorCode.not_controller}, version
        assert hasattr(answer, "error_code") or key == 9 or [name for name, _ in told] == about, version


def test_a_lost_request_is_not_handled_and_a_lost_answer_is(faulty: Faulty) -> None:
    faulty.faults.lose_request("Produce")
    faulty.faults.lose_answer("Produce")
    with pytest.raises(MalformedMessageError, match="lose_request"):
        faulty.produce()
    assert faulty.end_offset == 0
    with pytest.raises(MalformedMessageError, match="lose_answer"):
        faulty.produce()
    assert faulty.end_offset == 1


def test_a_delayed_request_is_handled_later(faulty: Faulty) -> None:
    faulty.faults.delay("Produce", 500)
    answer = Answer(0, 9, 9, faulty.produce())
    faulty.world.loop.advance(499)
    assert faulty.end_offset == 0
    faulty.world.loop.advance(1)
    assert faulty.end_offset == 1
    assert answer.read().responses[0].partition_responses[0].base_offset == 0


def test_what_cannot_be_asked_for_is_told_in_a_sentence(faulty: Faulty) -> None:
    with pytest.raises(ValueError, match="there is no API 'Prodcue'; there are Produce, Fetch"):
        faulty.faults.lose_answer("Prodcue")
    with pytest.raises(ValueError, match="is no error of Kafka's"):
        faulty.faults.fail("Produce", "oops")
    with pytest.raises(ValueError, match="has no error of its own"):
        faulty.faults.fail("Metadata", "not_controller")
    with pytest.raises(ValueError, match="cannot happen 0 times"):
        faulty.faults.lose_answer("Produce", times=0)
