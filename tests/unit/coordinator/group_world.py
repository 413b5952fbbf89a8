"""A shard with a clock that stands still: decisions are carried out at once, deadlines when the test lets time pass."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any

from penstock.base.clock import ManualClock
from penstock.base.errors import PenstockError
from penstock.coordinator.groups.config import GroupSettings
from penstock.coordinator.groups.messages import (
    Asker,
    Commit,
    Decision,
    Join,
    Joined,
    Leaving,
    Left,
    Record,
    Sync,
    Synced,
)
from penstock.coordinator.groups.model import NEVER_MS, Group
from penstock.coordinator.groups.offsets import PartitionOutcome
from penstock.coordinator.groups.shard import Shard

OUTSIDER = Asker("", None, -1)


class Waiting:
    """A reply, there or not yet."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def __call__(self, reply: Any) -> None:
        assert not self.replies, "a request is answered once"
        self.replies.append(reply)

    @property
    def is_there(self) -> bool:
        return bool(self.replies)

    @property
    def reply(self) -> Any:
        assert self.replies, "there is no reply yet"
        return self.replies[0]

    @property
    def error(self) -> type[PenstockError] | None:
        return None if self.reply.error is None else type(self.reply.error)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


class GroupWorld:
    def __init__(self, **settings: int) -> None:
        self.clock = ManualClock()
        self.settings = GroupSettings(**settings)
        self.numbers = count(1)
        self.shard = self.new_shard()
        self.records: list[Record] = []
        self.failure: PenstockError | None = None

    def new_shard(self) -> Shard:
        return Shard(self.settings, self.clock, lambda: str(next(self.numbers)))

    def run(self, decision: Decision) -> None:
        if decision.records and self.failure is not None:
            if decision.failed is not None:
                self.run(decision.failed(self.failure))
                return
        else:
            self.records += decision.records
            self.shard.appended(decision)
        for answer, reply in decision.replies:
            answer(reply)

    def reload(self) -> None:
        """Another shard, from the records alone."""
        self.shard = self.new_shard()
        for key, value in self.records:
            self.shard.replay(key, value)
        self.run(self.shard.loaded())

    def advance(self, ms: int) -> None:
        end_ms = self.clock.monotonic_ms() + ms
        while True:
            wakes = [group.wake_ms for group in self.shard.groups.values() if group.wake_ms != NEVER_MS]
            wake_ms = min(wakes, default=NEVER_MS)
            if wake_ms > end_ms:
                break
            self.clock.advance(max(wake_ms - self.clock.monotonic_ms(), 0))
            for group in list(self.shard.groups.values()):
                if group.wake_ms <= self.clock.monotonic_ms():
                    self.run(self.shard.expire(group))
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    def join(self, member_id: str = "", **values: Any) -> Waiting:
        waiting = Waiting()
        defaults: dict[str, Any] = {
            "group_id": "g",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "requires_known_id": False,
            "may_skip_assignment": False,
        }
        self.run(self.shard.join(Join(**{**defaults, "member_id": member_id, **values}), waiting))
        return waiting

    def sync(self, joined: Joined, assignments: dict[str, bytes] | None = None, **values: Any) -> Waiting:
        waiting = Waiting()
        defaults: dict[str, Any] = {
            "group_id": "g",
            "member_id": joined.member_id,
            "instance_id": None,
            "generation": joined.generation,
            "protocol_type": None,
            "protocol": None,
            "assignments": tuple((assignments or {}).items()),
        }
        self.run(self.shard.sync(Sync(**{**defaults, **values}), waiting))
        return waiting

    def heartbeat(self, joined: Joined, instance_id: str | None = None) -> type[PenstockError] | None:
        try:
            self.shard.heartbeat("g", Asker(joined.member_id, instance_id, joined.generation))
        except PenstockError as error:
            return type(error)
        return None

    def leave(self, *leaving: Leaving) -> tuple[Left, ...]:
        decision, left = self.shard.leave("g", leaving)
        self.run(decision)
        return left

    def commit(
        self, asker: Asker, *commits: Commit, group_id: str = "g", retention_ms: int = -1
    ) -> tuple[PartitionOutcome, ...]:
        decision, outcomes = self.shard.commit(group_id, asker, commits, retention_ms)
        self.run(decision)
        return outcomes

    def expire_offsets(self) -> None:
        for decision in self.shard.expire_offsets():
            self.run(decision)

    @property
    def group(self) -> Group:
        return self.shard.groups["g"]

    def stable(self, size: int = 1, **values: Any) -> list[Joined]:
        """A stable group of this many members, the leader first."""
        waits = [self.join(**values) for _ in range(size)]
        self.advance(self.settings.initial_delay_ms * (size + 1))
        joined = [wait.reply for wait in waits]
        joined.sort(key=lambda one: one.member_id != one.leader)
        syncs = [self.sync(one) for one in joined[1:]]
        syncs.append(self.sync(joined[0], {one.member_id: one.member_id.encode() for one in joined}))
        for one in syncs:
            reply: Synced = one.reply
            assert reply.error is None
        return joined
