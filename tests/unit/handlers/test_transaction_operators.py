"""What operators see of transactions and producers, and what becomes of their ids, in a broker without sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.test_transaction_apis import Served, opened, produce
from tests.unit.handlers.world import shape

from penstock.handlers.authoriser import Action
from penstock.protocol.transaction_records import (
    TransactionState,
    TransactionValue,
    encode_transaction_key,
    encode_transaction_value,
)
from penstock.records.build import build_batch
from penstock.replication.partition import ACKS_ALL
from penstock.storage.producer_state import Origin


@pytest.fixture
def world(tmp_path: Path) -> Served:
    return Served(tmp_path)


# Operators.
def test_producers_of_a_partition_are_described(world: Served) -> None:
    stamp = opened(world)
    assert produce(world, stamp) == "none"
    entity = shape(61, 0)
    topic = entity.topics.make(name="t", partition_indexes=(0, 9))
    found, missing = world.call(61, 0, entity.make(topics=(topic,))).topics[0].partitions
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (stamp.producer_id, stamp.epoch, 0)
    assert one.current_txn_start_offset == 0
    assert missing.error_code == ErrorCode.unknown_topic_or_partition


def listed(world: Served, **filters: Any) -> list[str]:
    entity = shape(66, 2)
    given = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}
    answer = world.call(66, 2, entity.make(**{**given, **filters}))
    assert answer.error_code == ErrorCode.none
    return sorted(one.transactional_id for one in answer.transaction_states)


def test_transactions_are_listed_by_state_producer_age_and_pattern(world: Served) -> None:
    stamp = opened(world)
    world.requests.init("y-1")
    assert listed(world) == ["x", "y-1"]
    assert listed(world, state_filters=("Ongoing",)) == ["x"]
    assert listed(world, producer_id_filters=(stamp.producer_id,)) == ["x"]
    world.clock.advance(1_000)
    assert listed(world, duration_filter=999, state_filters=("Ongoing",)) == ["x"]
    assert listed(world, duration_filter=1_000, state_filters=("Ongoing",)) == []
    assert listed(world, transactional_id_pattern="y-[0-9]+") == ["y-1"]
    assert listed(world, transactional_id_pattern="x|.*-.*") == ["x", "y-1"]
    assert listed(world, transactional_id_pattern="y") == []
    world.authoriser.denied = {(Action.DESCRIBE, "x")}
    assert listed(world) == ["y-1"]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "a{9}{9}{9}",
        "(a|a)*",
        r"(a)\1",
        "a*b*c*d",
        "a?" * 200,
        "[",
        "[]" * 499 + "{",
        "[^a]" * 200 + "{",
        "x" * 1_001,
        "a|" * 9,
    ],
)
def test_a_pattern_that_could_take_long_is_refused(world: Served, pattern: str) -> None:  # A20
    entity = shape(66, 2)
    answer = world.call(
        66,
        2,
        entity.make(
            state_filters=("Nonsense",), producer_id_filters=(), duration_filter=-1, transactional_id_pattern=pattern
        ),
    )
    assert answer.error_code == ErrorCode.invalid_regular_expression
    assert answer.unknown_state_filters == ("Nonsense",)


def test_the_counters_tell_how_many_are_open_for_how_long_and_how_many_were_aborted(world: Served) -> None:
    world.transactions.start()
    assert (world.transactions.open_count, world.transactions.longest_open_ms) == (0, 0)
    opened(world)
    world.loop.advance(7_000)
    assert (world.transactions.open_count, world.transactions.longest_open_ms) == (1, 7_000)
    world.loop.advance(70_000)
    assert (world.transactions.open_count, world.transactions.aborted_by_timeout) == (0, 1)


def test_ids_expire_in_batches_that_fit(world: Served) -> None:  # KAFKA-13099
    # A14
    world.transactions.start()
    names = [f"{number:05d}" + "n" * 20_000 for number in range(60)]
    for name in names:
        assert world.requests.init(name).error == "none"
    world.loop.advance(world.transactions.settings.expiration_ms + 3_600_000)
    assert world.requests.states() == {}


def test_java_clients_are_told_of_the_newer_protocol(world: Served) -> None:
    entity = shape(18, 4)
    answer = world.call(18, 4, entity.make(client_software_name="a", client_software_version="1"))
    assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [("transaction.version", 2)]
    assert answer.finalized_features_epoch >= 0
    assert [(one.min_version, one.max_version) for one in answer.supported_features] == [(0, 2)]
    older = world.call(18, 3, shape(18, 3).make(client_software_name="a", client_software_version="1"))
    assert older.supported_features == ()


def test_loading_does_not_stop_at_records_that_are_not_readable(tmp_path: Path) -> None:  # KAFKA-9065
    world = Served(tmp_path)
    assert world.requests.init("x").error == "none"
    partition = world.partitions.get("__transaction_state", 0)
    for key in (b"", b"\x00\x09zz", b"\x00\x00\x00\x01y"):
        partition.append(bytearray(build_batch([(0, key, b"\x00\x63", ())])), ACKS_ALL, Origin.COORDINATOR)
    partition.leader_epoch += 1
    world.transactions.follow({"__transaction_state"})
    world.loop.turn()
    assert world.requests.states() == {"x": "Empty"}


def test_a_producer_id_that_another_broker_gave_is_not_given_again(tmp_path: Path) -> None:
    world = Served(tmp_path)
    values = [
        TransactionValue(
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=60_000,
            state=TransactionState.EMPTY,
            partitions=(),
            last_update_ms=0,
            start_ms=-1,
            next_producer_id=next_id,
        )
        for producer_id, next_id in ((7_000, -1), (10, 9_000))
    ]
    records = [
        (0, encode_transaction_key(f"y{number}"), encode_transaction_value(value), ())
        for number, value in enumerate(values)
    ]
    partition = world.partitions.get("__transaction_state", 0)
    partition.append(bytearray(build_batch(records)), ACKS_ALL, Origin.COORDINATOR)
    partition.leader_epoch += 1
    world.transactions.follow({"__transaction_state"})
    world.loop.turn()
    assert world.requests.states() == {"y0": "Empty", "y1": "Empty"}
    assert world.requests.init("x").producer_id > 9_000
    assert world.requests.init(None).producer_id > 9_000
