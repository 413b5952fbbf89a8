"""Topics of a cluster: any broker writes that one is wanted, the controller gives it leaders, and the answer waits for that."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock.base.errors import PenstockError
from penstock.controller.topics import TopicDecision, TopicDefaults, decide_mark_deleted, leave_states_to_controller
from penstock.drivers.cluster_store import ClusterStore
from penstock.drivers.config_changes import telling
from penstock.drivers.loop import Loop
from penstock.drivers.steps import run_steps
from penstock.drivers.topics import Confirmed, TopicDriver
from penstock.metadata import layout
from penstock.metadata.image import Image, TopicImage
from penstock.metadata.store import (
    BadVersionError,
    Committed,
    Create,
    LateError,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Refused,
    SetData,
    StoreError,
    Transaction,
)

WAIT_MS = 30_000
GONE_MS = 5_000
_LATE = LateError(f"it is written down, but the controller has not done it within {WAIT_MS // 1000} s; it may yet")


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    is_over: Callable[[], bool]
    confirmed: Confirmed


def _over(operation: SetData, node: Node) -> SetData:
    """The same over a node as it was read: only if nobody changed it since, and with what others keep in it."""
    data = layout.written_over(operation.path, node.data, operation.data)
    return replace(operation, data=data, version=node.stat.version)


class ClusterTopics(TopicDriver):
    def __init__(
        self,
        image: Image,
        store: ClusterStore,
        defaults: TopicDefaults,
        new_id: Callable[[], uuid.UUID],
        loop: Loop,
    ) -> None:
        super().__init__(image, store, defaults, new_id)
        self._loop = loop
        self._cluster_store = store
        self._waits: list[_Wait] = []
        self._marks: dict[str, _Wait] = {}
        store.on_watch(self._look_at_mark)

    def create(self, decision: TopicDecision, confirmed: Confirmed) -> None:
        def is_over() -> bool:
            return self._is_led(decision.name, len(decision.replicas))

        self._write(leave_states_to_controller(decision.transaction), is_over, confirmed)

    def submit(self, transaction: Transaction, confirmed: Confirmed) -> None:
        """A grown topic."""
        grown = {
            name: len(layout.decode_topic(one.path, one.data).replicas)
            for one in transaction.operations
            if isinstance(one, SetData) and (name := layout.topic_of(one.path)) is not None
        }

        def is_over() -> bool:
            return all(self._is_led(name, count) for name, count in grown.items())

        def checked(outcome: Transaction | StoreError) -> None:
            if isinstance(outcome, StoreError):
                confirmed(outcome)
            else:
                self._write(leave_states_to_controller(outcome), is_over, confirmed)

        if grown:
            run_steps(self._checked(transaction), checked)
        else:
            checked(transaction)

    async def _checked(self, transaction: Transaction) -> Transaction | StoreError:
        """The same where it changes no partition that there is: this broker's view may be old, and would give logs away."""
        operations: list[Operation] = []
        for one in transaction.operations:
            if isinstance(one, SetData) and (name := layout.topic_of(one.path)) is not None:
                try:
                    node = await self._cluster_store.data(one.path)
                except StoreError as error:
                    return error
                if node is None:
                    return NoNodeError(f"there is no topic {name} any more")
                there, wanted = layout.decode_topic(one.path, node.data), layout.decode_topic(one.path, one.data)
                kept = {number: wanted.replicas.get(number) for number in there.replicas}
                if wanted.topic_id != there.topic_id or kept != dict(there.replicas):
                    return BadVersionError(f"topic {name} was changed by somebody else meanwhile")
                one = _over(one, node)
            operations.append(one)
        return Transaction(operations=tuple(operations))

    def change_config(self, path: str, decide: Callable[[], Transaction], confirmed: Confirmed) -> None:
        """Again where another broker changed it meanwhile: neither undoes what the other did."""

        def written(error: PenstockError | None) -> None:
            if isinstance(error, BadVersionError | NodeExistsError):
                self.change_config(path, decide, confirmed)
            else:
                confirmed(error)

        def decided(outcome: Transaction | PenstockError) -> None:
            if isinstance(outcome, Transaction):
                self._write(outcome, lambda: True, written)
            else:
                confirmed(outcome)

        run_steps(self._decided(path, decide), decided)

    async def _decided(self, path: str, decide: Callable[[], Transaction]) -> Transaction | PenstockError:
        try:
            node = await self._cluster_store.data(path)
            if node is None:
                self._image.forget_config(path)
                return decide()
            self._image.take_config(path, node.data)
            operations = decide().operations
        except PenstockError as error:
            return error
        return Transaction(
            operations=tuple(
                _over(one, node) if isinstance(one, SetData) and one.path == path else one for one in operations
            )
        )

    def delete(self, topic: TopicImage, confirmed: Confirmed) -> None:
        """Answers when the topic is gone from the tree too, so that one of the same name can be made; not for long
        where a broker that has logs of it is away."""

        def is_over() -> bool:
            present = self._image.topics.get(topic.name)
            return present is None or present.topic_id != topic.topic_id

        def forgotten(error: PenstockError | None) -> None:
            if error is not None:
                confirmed(error)
                return
            wait = _Wait(lambda: False, confirmed)
            self._waits.append(wait)
            self._marks[layout.deletion_mark(topic.name)] = wait
            self._loop.call_later(GONE_MS, lambda: self._end(wait))
            self._look_at_mark(layout.deletion_mark(topic.name))

        self._write(decide_mark_deleted(topic), is_over, forgotten)

    def _look_at_mark(self, path: str) -> None:
        wait = self._marks.get(path)
        if wait is not None:
            run_steps(self._is_gone(path), lambda is_gone: self._end(wait) if is_gone else None)

    async def _is_gone(self, path: str) -> bool:
        try:
            return await self._cluster_store.data(path, watch=True) is None
        except StoreError:
            return False

    def _is_led(self, name: str, partitions: int) -> bool:
        topic = self._image.topics.get(name)
        return (
            topic is not None
            and len(topic.partitions) >= partitions
            and all(one.leader >= 0 for one in topic.partitions.values())
        )

    def _write(self, transaction: Transaction, is_over: Callable[[], bool], confirmed: Confirmed) -> None:
        def written(event: Committed | Refused) -> None:
            if isinstance(event, Committed):
                # News of it comes later; who changes the same configuration next must see it now, or would undo it.
                for operation in transaction.operations:
                    if isinstance(operation, Create | SetData):
                        self._image.take_config(operation.path, operation.data)
            if isinstance(event, Refused) and not (
                isinstance(event.error, NodeExistsError)
                and transaction.operations[event.index].path.startswith(layout.DELETED_TOPICS)
            ):
                confirmed(event.error)
            elif is_over():
                confirmed(None)
            else:
                wait = _Wait(is_over, confirmed)
                self._waits.append(wait)
                self._loop.call_later(WAIT_MS, lambda: self._end(wait, _LATE))

        self._store.submit(telling(transaction), written)

    def follow(self, topics: Iterable[str]) -> None:
        """The image of these topics changed."""
        del topics
        for wait in [wait for wait in self._waits if wait.is_over()]:
            self._end(wait)

    def _end(self, wait: _Wait, error: StoreError | None = None) -> None:
        if wait in self._waits:
            self._waits.remove(wait)
            self._marks = {path: one for path, one in self._marks.items() if one is not wait}
            wait.confirmed(error)
