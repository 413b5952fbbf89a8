"""What Apache Kafka and Penstock are both asked about groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.compat.differential_names import DATA, UNKNOWN_ID
from tests.support.differential import Case, Values


def groups() -> Iterator[Case]:
    yield Case(name="coordinator", key=10, values={"key": "d-g", "key_type": 0, "coordinator_keys": ["d-g"]})
    yield Case(
        name="coordinator: kind 9",
        key=10,
        values={"key": "d-g", "key_type": 9, "coordinator_keys": ["d-g"]},
        versions=range(1, 100),
    )
    join = {
        "group_id": "d-g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    yield Case(name="join: needs an id", key=11, values=join, versions=range(4, 100), is_change=True)
    yield Case(name="join: no group", key=11, values={**join, "group_id": ""}, is_change=True)
    yield Case(name="join: short session", key=11, values={**join, "session_timeout": 5}, is_change=True)
    yield Case(name="join: unknown member", key=11, values={**join, "member_id": "nobody"}, is_change=True)
    yield Case(name="join: no protocol", key=11, values={**join, "protocols": []}, is_change=True)
    member = {
        "group_id": "d-none",
        "generation_id": 1,
        "member_id": "m",
        "members": [{"member_id": "m", "group_instance_id": None}],
    }
    yield Case(name="heartbeat: unknown", key=12, values=member)
    yield Case(name="sync: unknown", key=14, values={**member, "protocol_type": "consumer", "protocol_name": "range"})
    yield Case(name="leave: unknown", key=13, values=member)
    yield Case(name="describe: unknown", key=15, values={"groups": ["d-none"], "include_authorized_operations": True})
    yield Case(name="delete: unknown", key=42, values={"groups_names": ["d-none"]})

    def commit(
        group: str, topic: str, number: int, generation: int = -1, member_id: str = ""
    ) -> Callable[[Any, int], Values]:
        def values(ids: Any, _version: int) -> Values:
            entry = {
                "partition_index": number,
                "committed_offset": 3,
                "committed_leader_epoch": -1,
                "committed_metadata": "m",
                "commit_timestamp": -1,
            }
            return {
                "group_id": group,
                "generation_id_or_member_epoch": generation,
                "member_id": member_id,
                "retention_time": -1,
                "topics": [{"name": topic, "topic_id": ids.get(topic, UNKNOWN_ID), "partitions": [entry]}],
            }

        return values

    def committed(group: str, number: int) -> Callable[[Any, int], Values]:
        def values(ids: Any, _version: int) -> Values:
            topic = {"name": DATA, "topic_id": ids[DATA], "partition_indexes": [number]}
            return {
                "group_id": group,
                "topics": [topic],
                "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": [topic]}],
            }

        return values

    yield Case(name="commit", key=8, values=commit("d-simple", DATA, 0), is_change=True)
    yield Case(name="commit: unknown partition", key=8, values=commit("d-simple", DATA, 9), is_change=True)
    yield Case(name="commit: unknown topic", key=8, values=commit("d-simple", "d-missing", 0), is_change=True)
    yield Case(name="commit: no member", key=8, values=commit("d-simple", DATA, 0, 5, "m"), is_change=True)
    yield Case(name="committed", key=9, values=committed("d-simple", 0))
    yield Case(name="committed: nothing there", key=9, values=committed("d-simple", 1))
    yield Case(name="committed: unknown group", key=9, values=committed("d-none", 0))
    yield Case(name="describe: simple", key=15, values={"groups": ["d-simple"]})
    yield Case(name="list", key=16, values={})
    yield Case(name="list: empty groups", key=16, values={"states_filter": ["Empty"]}, versions=range(4, 100))
    gone = {
        "group_id": "d-simple",
        "topics": [{"name": DATA, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}],
    }
    yield Case(name="forget", key=47, values=gone, is_change=True)
    yield Case(name="forget: unknown group", key=47, values={**gone, "group_id": "d-none"}, is_change=True)
