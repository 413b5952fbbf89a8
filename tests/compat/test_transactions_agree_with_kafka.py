"""The same requests to Apache Kafka and to Penstock, in any order that a seed gives: the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.support import judges
from tests.support.kafka_jvm import KafkaBroker
from tests.support.processes import wait_until
from tests.support.served_broker import ServedBroker
from tests.support.transaction_requests import Stamp, TransactionRequests, connection_to

PLACES = (("t", 0), ("t", 1), ("u", 0))
GROUP = "g"
ONE_PARTITION = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}


class Side:
    """One broker, with the producers as it numbered them."""

    def __init__(self, servers: str) -> None:
        self._connection = connection_to(servers)
        self.requests = TransactionRequests(self._connection.call)
        self.names: dict[int, int] = {}

    def named(self, stamp: Stamp) -> Stamp:
        """With the producer id as the number of its first appearance: brokers hand out ids of their own."""
        if stamp.producer_id < 0:
            return stamp
        return stamp._replace(producer_id=self.names.setdefault(stamp.producer_id, len(self.names)))

    def real(self, stamp: Stamp) -> Stamp:
        ids = {name: producer_id for producer_id, name in self.names.items()}
        return stamp._replace(producer_id=ids.get(stamp.producer_id, stamp.producer_id))

    def settled(self) -> dict[str, str]:
        """The states, once no transaction is between its decision and its end."""

        def ask() -> dict[str, str] | None:
            states = self.requests.states()
            return states if not any(state.startswith("Prepare") for state in states.values()) else None

        return wait_until(ask, seconds=60, what="every transaction is completed")

    def close(self) -> None:
        self._connection.close()


class Producer:
    """What a script knows of one transactional id: its stamps, new and old, and its next sequences."""

    def __init__(self, transactional_id: str, *, bumps: bool, continues: bool = True) -> None:
        self.transactional_id = transactional_id
        self.bumps = bumps
        self.continues = continues
        self.stamps = [Stamp("none", 999_999, 3)]
        self.sequences: dict[tuple[str, int], int] = {}

    def learn(self, stamp: Stamp) -> None:
        if stamp.error == "none" and stamp.producer_id >= 0:
            if stamp != self.stamps[-1]:
                self.sequences = {}
            self.stamps.append(stamp)


@contextmanager
def both(tmp_path: Path, version: str) -> Iterator[tuple[Side, Side]]:
    judges.require(f"kafka-{version}")
    (tmp_path / "ours").mkdir()
    with KafkaBroker(version, tmp_path / "kafka") as kafka, ServedBroker(tmp_path / "ours", **ONE_PARTITION) as ours:
        sides = []
        for servers in (kafka.bootstrap_servers, ours.bootstrap_servers):
            admin = AdminClient({"bootstrap.servers": servers})
            for future in admin.create_topics([NewTopic("t", 2), NewTopic("u", 1)]).values():
                future.result(60)
            side = Side(servers)
            wait_until(partial(_is_ready, side.requests), seconds=60, what="the coordinators are loaded")
            side.names.clear()
            sides.append(side)
        yield sides[0], sides[1]
        for side in sides:
            side.close()
    assert "Traceback" not in ours.output


def _is_ready(requests: TransactionRequests) -> bool:
    found = [requests.find_coordinator(key, key_type) for key, key_type in ((GROUP, 0), ("ready", 1))]
    if found != ["none", "none"]:
        return False
    committed, _ = requests.committed(GROUP, ("t", 0), require_stable=True)
    return committed == "none" and requests.init("ready").error == "none"


def delete(chance: random.Random) -> tuple[str, Callable[[Side], Any]]:
    """Somebody deletes what a transaction may hold."""
    place = chance.choice(PLACES)
    is_whole = chance.random() < 0.3

    def send(side: Side) -> Any:
        said = side.requests.delete_group(GROUP) if is_whole else side.requests.delete_offset(GROUP, place)
        # Kafka remembers a group that has nothing left until it looks for those that have expired.
        return "none" if said == "group_id_not_found" else said

    return f"delete {'the group' if is_whole else place}", send


def step(chance: random.Random, producer: Producer) -> tuple[str, Callable[[Side], Any]]:
    """One request of a producer in any version that it may have, mostly a sensible one."""
    name = producer.transactional_id if chance.random() < 0.98 else chance.choice(("", "nobody"))
    stamp = producer.stamps[-1]
    if chance.random() < 0.15:
        stamp = chance.choice(producer.stamps)
    if chance.random() < 0.05:
        stamp = stamp._replace(epoch=max(stamp.epoch + chance.choice((-1, 1)), 0))
    kinds = ["init"] * 2 + ["produce"] * 6 + ["end"] * 5 + ["offsets"] * 3
    kinds += ["verify"] * 2 if producer.bumps else ["add"] * 5 + ["add_offsets"] * 2 + ["verify"]
    kind = chance.choice(kinds)
    if kind in ("produce", "offsets"):
        return _write(chance, kind, stamp, producer)
    if chance.random() < 0.03:
        # Not in writes: Kafka appends a batch of a transaction that names no producer, and Penstock does not.
        stamp = chance.choice((Stamp("none"), stamp._replace(epoch=-1)))
    if kind in ("init", "end"):
        return _of_the_coordinator(chance, kind, name, stamp, producer)
    places = chance.sample(PLACES, chance.choice((1, 1, 2)))
    if kind == "verify":
        return f"verify {stamp} {places}", lambda side: side.requests.verify(name, side.real(stamp), places)
    if kind == "add":
        wrong = [*places, ("missing", 0)] if chance.random() < 0.1 else places
        version = chance.choice(range(4))
        return (
            f"add v{version} {name!r} {stamp} {wrong}",
            lambda side: side.requests.add_partitions(name, side.real(stamp), wrong, version=version),
        )
    version = chance.choice(range(5))
    return (
        f"add_offsets v{version} {name!r} {stamp}",
        lambda side: side.requests.add_offsets(name, side.real(stamp), GROUP, version=version),
    )


def _of_the_coordinator(
    chance: random.Random, kind: str, name: str, stamp: Stamp, producer: Producer
) -> tuple[str, Callable[[Side], Any]]:
    if kind == "end":
        commit = chance.random() < 0.6
        version = 5 if producer.bumps else chance.choice(range(5))
        return (
            f"end v{version} {name!r} {stamp} {commit}",
            lambda side: side.named(side.requests.end(name, side.real(stamp), commit=commit, version=version)),
        )
    version = chance.choice(range(6))
    expected = stamp if producer.continues and chance.random() < 0.5 else Stamp("none")
    timeout_ms = chance.choice((60_000, 60_000, 60_000, 0, 900_001))

    def init(side: Side) -> Any:
        real = side.real(expected)
        return side.named(side.requests.init(name, timeout_ms, real.producer_id, real.epoch, version=version))

    return f"init v{version} {name!r} {expected} {timeout_ms}", init


def _write(chance: random.Random, kind: str, stamp: Stamp, producer: Producer) -> tuple[str, Callable[[Side], Any]]:
    name, place = producer.transactional_id, chance.choice(PLACES)
    if kind == "offsets":
        offset = chance.randrange(100)
        metadata = "m" * 5000 if chance.random() < 0.1 else None
        group = GROUP if chance.random() < 0.95 else ""
        version = 5 if producer.bumps else chance.choice(range(5))

        def commit_offset(side: Side) -> Any:
            return side.requests.commit_offset(
                name, side.real(stamp), group, place, offset, version=version, metadata=metadata
            )

        return f"offsets v{version} {stamp} {group!r} {place} {offset}", commit_offset
    sequence = producer.sequences.get(place, 0)
    if chance.random() < 0.05:
        sequence += chance.choice((1, 5))
    version = 12 if producer.bumps else chance.choice(range(3, 12))

    def produce(side: Side) -> Any:
        return side.requests.produce(name, side.real(stamp), *place, (b"x", b"y"), sequence=sequence, version=version)

    return f"produce v{version} {stamp} {place} {sequence}", produce


def picture(side: Side) -> dict[str, object]:
    requests = side.requests
    states = side.settled()

    def named(producer_id: int, *rest: int) -> tuple[int, ...]:
        return side.names.get(producer_id, -1), *rest

    return {
        "states": states,
        "producers": [sorted(named(*one) for one in requests.producers(place)) for place in PLACES],
        "ends": [requests.end_offset(*place, committed=False) for place in PLACES],
        "stable": [requests.end_offset(*place, committed=True) for place in PLACES],
        "offsets": [requests.committed(GROUP, place, require_stable=True) for place in PLACES],
        "last": [requests.committed(GROUP, place, require_stable=False) for place in PLACES],
    }


_OF_A_LATER_EPOCH = (("out_of_order_sequence_number", -1), ("invalid_producer_epoch", -1))
"""3.9 does not ask the coordinator about a batch of a later epoch where the same id has a transaction; 4.3 does."""


@pytest.mark.parametrize(("version", "seed"), [("4.3", 1), ("4.3", 2), ("3.9", 3)])
def test_the_same_requests_get_the_same_answers(tmp_path: Path, version: str, seed: int, full_counts: bool) -> None:
    chance = random.Random(seed)
    # 3.9 knows no transactions V2, fences who asks again after its transaction was aborted for it, as 4.3 and Penstock do not,
    # and its groups do not delete what is pending.
    is_new = version != "3.9"
    with both(tmp_path, version) as (kafka, ours):
        producers = [Producer("a", bumps=False, continues=is_new), Producer("b", bumps=is_new, continues=is_new)]
        said: list[str] = []
        for number in range(2_000 if full_counts else 250):
            producer = chance.choice(producers)
            text, send = delete(chance) if is_new and chance.random() < 0.04 else step(chance, producer)
            wanted, got = send(kafka), send(ours)
            said.append(f"{number} {producer.transactional_id} {text} -> {wanted}")
            story = "\n".join(said[-25:])
            if not is_new and (wanted, got) == _OF_A_LATER_EPOCH:
                continue
            assert got == wanted, f"Kafka answers {wanted}, Penstock {got}:\n{story}"
            if isinstance(wanted, Stamp):
                producer.learn(wanted)
            elif text.startswith("produce") and wanted[0] == "none":
                producer.sequences[_place(text)] = _sequence(text) + 2
            assert picture(ours) == (seen := picture(kafka)), f"Kafka shows {seen}:\n{story}"


def _place(text: str) -> tuple[str, int]:
    return next(place for place in PLACES if str(place) in text)


def _sequence(text: str) -> int:
    return int(text.rsplit(" ", 1)[1])
