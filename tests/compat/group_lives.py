"""Lives of groups, told as steps: the same requests to any broker, and what it answered to each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from tests.support.processes import wait_until
from tests.support.wire import Wire

TOPIC = "life"
SECONDS = 60
_UNTOLD = {"throttle_time", "error_message"}


@dataclass(frozen=True, kw_only=True)
class Versions:
    """One generation of clients."""

    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    describe: int

    @property
    def has_static(self) -> bool:
        return self.join >= 5


CLIENTS = {
    "newest": Versions(join=9, sync=5, heartbeat=4, leave=5, commit=9, describe=5),
    "older": Versions(join=5, sync=3, heartbeat=3, leave=3, commit=7, describe=4),
    "oldest": Versions(join=2, sync=1, heartbeat=1, leave=1, commit=2, describe=1),
}


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Told:
    """One broker's side of a life: each member on a connection of its own, ids under the names that the steps gave them."""

    def __init__(self, address: str, group: str, versions: Versions) -> None:
        self._address = address
        self.group = group
        self.versions = versions
        self._answers: list[tuple[str, Any]] = []
        self.ids: dict[str, str] = {"nobody": "nobody", "": ""}
        self._names: dict[str, str] = {}
        self._wires: dict[str, Wire] = {}
        self._open = ExitStack()
        self._threads = self._open.enter_context(ThreadPoolExecutor(4))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _wire(self, who: str) -> Wire:
        if who not in self._wires:
            self._wires[who] = self._open.enter_context(Wire(self._address))
        return self._wires[who]

    # Steps.
    def ask(self, step: str, who: str, key: int, version: int, values: Mapping[str, Any]) -> Any:
        return self.end(step, self.begin(who, key, version, values))

    def begin(self, who: str, key: int, version: int, values: Mapping[str, Any]) -> Future[Any]:
        """A request whose answer may wait for others."""
        return self._threads.submit(self._wire(who).ask, key, version, values)

    def end(self, step: str, asked: Future[Any], name: str = "") -> Any:
        """The answer, with its place in the story; the id in it goes by `name` from now on."""
        answer = asked.result(SECONDS)
        if name:
            self.ids[name] = answer["member_id"]
            self._names[answer["member_id"]] = name
        self._answers.append((step, answer))
        return answer

    def story(self) -> list[tuple[str, Any]]:
        """Every step and its answer. A leader is told of members before those know their ids: named at the end."""
        return [(step, self._named(answer)) for step, answer in self._answers]

    def _named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._named(one) for key, one in value.items() if key not in _UNTOLD}
        if isinstance(value, list):
            return sorted((self._named(one) for one in value), key=str)
        return self._names.get(value, value) if isinstance(value, str) else value

    # Requests.
    def join(self, member: str, *, who: str = "", instance: str | None = None, **more: Any) -> Future[Any]:
        values = {
            "group_id": self.group,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": self.ids[member],
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(TOPIC)}],
            **more,
        }
        return self.begin(who or member, 11, self.versions.join, values)

    def enter(self, member: str) -> Future[Any]:
        """A new member's join; newer clients are told an id first."""
        self.ids.setdefault(member, "")
        if self.versions.join >= 4:
            self.end(f"{member} asks for an id", self.join("", who=member), member)
        return self.join(member)

    def sync(
        self,
        member: str,
        generation: int,
        assigned: Mapping[str, bytes] | None = None,
        instance: str | None = None,
        **more: Any,
    ) -> Future[Any]:
        values = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": self.ids[member],
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": self.ids[name], "assignment": data} for name, data in (assigned or {}).items()
            ],
            **more,
        }
        return self.begin(member, 14, self.versions.sync, values)

    def heartbeat(self, step: str, member: str, generation: int, instance: str | None = None) -> None:
        values = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": self.ids[member],
            "group_instance_id": instance,
        }
        self.ask(step, member or "nobody", 12, self.versions.heartbeat, values)

    def leave(self, step: str, *members: tuple[str, str | None]) -> None:
        identities = [{"member_id": self.ids[name], "group_instance_id": instance} for name, instance in members]
        values = {"group_id": self.group, "member_id": self.ids[members[0][0]], "members": identities}
        self.ask(step, "leaving", 13, self.versions.leave, values)

    def commit(self, step: str, member: str, generation: int, instance: str | None = None) -> None:
        entry = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m"}
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": generation,
            "member_id": self.ids[member],
            "group_instance_id": instance,
            "retention_time": -1,
            "topics": [{"name": TOPIC, "partitions": [entry]}],
        }
        self.ask(step, "committing", 8, self.versions.commit, values)

    def describe(self, step: str) -> None:
        self.ask(step, "looking", 15, self.versions.describe, {"groups": [self.group]})

    def forget_offset(self, step: str) -> None:
        topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
        self.ask(step, "looking", 47, 0, {"group_id": self.group, "topics": topics})

    def delete(self, step: str) -> None:
        self.ask(step, "looking", 42, 2, {"groups_names": [self.group]})

    def until(self, state: str) -> None:
        """A join that waits has arrived when the group says so."""

        def arrived() -> bool:
            (group,) = self._wire("looking").ask(15, 5, {"groups": [self.group]})["groups"]
            return bool(group["group_state"] == state)

        wait_until(arrived, seconds=SECONDS, what=f"{self.group} is in state {state}")


Life = Callable[[Told], None]


def one_member(told: Told) -> None:
    told.end("a joins", told.enter("a"), "a")
    told.describe("before the assignment")
    told.heartbeat("a heartbeat before the assignment", "a", 1)
    told.commit("a commit before the assignment", "a", 1)
    told.end("a sync of another generation", told.sync("a", 7))
    told.end("a sync of nobody", told.sync("nobody", 1))
    told.end("a sync with another protocol", told.sync("a", 1, {"a": b"x"}, protocol_name="other"))
    told.end("a join again before the assignment", told.join("a"))
    told.end("a syncs", told.sync("a", 1, {"a": b"all"}))
    told.describe("stable")
    told.heartbeat("a heartbeat", "a", 1)
    told.heartbeat("a heartbeat of another generation", "a", 2)
    told.heartbeat("a heartbeat of nobody", "nobody", 1)
    told.end("a sync again", told.sync("a", 1))
    told.commit("a commit", "a", 1)
    told.commit("a commit of another generation", "a", 0)
    told.commit("a commit of nobody", "nobody", 1)
    told.commit("a commit from outside", "", -1)
    told.forget_offset("an offset that a member lives by")
    told.delete("a group with members")
    told.end(
        "a member without a protocol in common", told.join("", who="x", protocols=[{"name": "o", "metadata": b""}])
    )
    told.end("a member of another type", told.join("", who="x", protocol_type="connect"))
    told.end("a join of nobody", told.join("nobody", who="x"))
    told.leave("nobody leaves", ("nobody", None))
    told.leave("a leaves", ("a", None))
    told.describe("empty")
    told.heartbeat("a heartbeat in an empty group", "a", 1)
    told.end("a sync in an empty group", told.sync("a", 1))
    told.end("a join in an empty group", told.join("a"))
    told.commit("a member's commit in an empty group", "a", 1)
    told.commit("a commit from outside in an empty group", "", -1)
    told.forget_offset("an offset that nobody needs")
    told.delete("an empty group")
    told.describe("gone")


def two_members(told: Told) -> None:
    told.end("a joins", told.enter("a"), "a")
    told.end("a syncs", told.sync("a", 1, {"a": b"all"}))
    waiting = told.enter("b")
    told.until("PreparingRebalance")
    told.heartbeat("a heartbeat in a rebalance", "a", 1)
    told.end("a sync in a rebalance", told.sync("a", 1, {"a": b"late"}))
    told.commit("a commit in a rebalance", "a", 1)
    told.describe("preparing")
    told.end("a joins again", told.join("a"))
    told.end("b joined", waiting, "b")
    waiting = told.sync("b", 2)
    told.end("a assigns", told.sync("a", 2, {"a": b"left", "b": b"right"}))
    told.end("b is assigned", waiting)
    told.describe("two")
    told.end("a follower joins again as it is", told.join("b"))
    told.heartbeat("nothing has changed", "a", 2)
    waiting = told.join("a")
    told.until("PreparingRebalance")
    told.heartbeat("the leader joined again", "b", 2)
    told.end("b follows", told.join("b"))
    told.end("a leads", waiting)
    other = [{"name": "range", "metadata": subscription(TOPIC, "other")}]
    waiting = told.join("b", protocols=other)
    told.until("PreparingRebalance")
    told.end("a sync of the generation before", told.sync("a", 3, {"a": b"x"}))
    told.end("a once more", told.join("a"))
    told.end("b with another subscription", waiting)
    told.end("a assigns again", told.sync("a", 4, {"a": b"1", "b": b"2"}))
    told.end("b is assigned again", told.sync("b", 4))
    told.leave("b leaves", ("b", None))
    told.until("PreparingRebalance")
    told.heartbeat("b left", "a", 4)
    told.heartbeat("who left", "b", 4)
    told.end("a is alone", told.join("a"))
    told.end("a has all", told.sync("a", 5, {"a": b"all"}))
    told.describe("one")
    told.leave("a leaves", ("a", None))
    told.delete("at the end")


def static_members(told: Told) -> None:
    told.ids.update({"s": "", "t": ""})
    told.end("s joins", told.join("s", instance="one"), "s")
    told.end("s syncs", told.sync("s", 1, {"s": b"all"}, "one"))
    told.heartbeat("s", "s", 1, "one")
    told.heartbeat("s under a wrong name", "s", 1, "two")
    told.ids["s before"] = told.ids["s"]
    told.end("s comes back", told.join("", who="s", instance="one"), "s")
    told.describe("after its return")
    told.heartbeat("the s of before", "s before", 1, "one")
    told.end("a sync of the s before", told.sync("s before", 1, instance="one"))
    told.commit("a commit of the s before", "s before", 1, "one")
    told.end("a join of the s before", told.join("s before", instance="one"))
    told.end("s syncs again", told.sync("s", 1, instance="one"))
    told.commit("a commit of s", "s", 1, "one")
    waiting = told.join("t", instance="two")
    told.until("PreparingRebalance")
    told.end("s joins with t", told.join("s", instance="one"))
    told.end("t joins", waiting, "t")
    waiting = told.sync("t", 2, instance="two")
    told.end("s assigns", told.sync("s", 2, {"s": b"1", "t": b"2"}, "one"))
    told.end("t is assigned", waiting)
    told.ids["t before"] = told.ids["t"]
    told.end("t comes back", told.join("", who="t", instance="two"), "t")
    told.end("t has what it had", told.sync("t", 2, instance="two"))
    told.heartbeat("s did not notice", "s", 2, "one")
    told.leave("some who are not there", ("", "three"), ("t before", "two"), ("nobody", None))
    told.leave("t by its name", ("", "two"))
    told.until("PreparingRebalance")
    told.end("s alone", told.join("s", instance="one"))
    told.leave("s", ("s", "one"))
    told.describe("empty")
    told.delete("at the end")


LIVES: Mapping[str, Life] = {"one": one_member, "two": two_members, "static": static_members}


def story(address: str, life: str, clients: str) -> list[tuple[str, Any]]:
    """What a broker says to a life that clients of one generation lead."""
    with Told(address, f"{life}-{clients}", CLIENTS[clients]) as told:
        LIVES[life](told)
        return told.story()
