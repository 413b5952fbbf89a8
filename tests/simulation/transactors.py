"""Transactional producers of a simulated cluster, in the older protocol and in the newer one (KIP-890).

Each writes to several partitions and commits an offset, all in one transaction, and asks again until it hears what became
of a request. Some are replaced by another under their name and do not know it, some vanish in the middle. Beside them somebody
commits offsets of a group without transactions, and somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError
from penstock.base.ids import TopicPartition
from penstock.client.messages import call_codec
from penstock.client.produce import ProduceCall, encode_produce_call
from penstock.drivers import groups, transactions
from penstock.drivers.steps import Reply, run_steps
from penstock.peers.link import Body
from penstock.records.build import build_batch
from tests.simulation.checks import Place, Violation
from tests.simulation.events import NodeLoop
from tests.simulation.network import SimLink

if TYPE_CHECKING:
    from tests.simulation.cluster import SimCluster

CLIENT_ID = 300
NAMES = ("x", "y", "z")
"""Transactional ids; `z` keeps to the older protocol."""
OLDER = "z"
GONE = "w"
"""One that begins a transaction, and never comes back."""
PLAIN_GROUP = "plain"
TIMEOUT_MS = 900
LAST_TRY_MS = 3_000
"""After all is healed each transactional id has so long to find its peace; then it is used once more."""

PRODUCE, OFFSET_COMMIT, OFFSET_FETCH = 0, 8, 9
INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 22, 24, 25, 26, 28

AGAIN = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.kafka_storage_error,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_topic_id,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unstable_offset_commit,
}
"""What passes."""


class SilenceError(Exception):
    """Nobody answered: what was asked may have happened, or happen yet."""


class Refused(Exception):
    """An error that does not pass, or nobody there to hear an answer."""


class Transaction:
    def __init__(self, number: int, group: str) -> None:
        self.number = number
        self.group = group
        self.written: dict[Place, list[bytes]] = {}
        """What was acknowledged."""
        self.has_offset = False
        self.may_be_committed = False
        self.is_committed = False


class Transactors:
    def __init__(self, cluster: SimCluster, places: list[Place]) -> None:
        self.cluster = cluster
        self.places = places
        self.transactions: list[Transaction] = []
        self.last: list[Transaction] = []
        """Those after everything is healed."""
        self.told_offset = self.acknowledged_offset = -1
        self._asked_offset = -1
        self._links: dict[int, SimLink] = {}
        self._loop = NodeLoop(cluster.events)

    def start(self) -> None:
        for name in NAMES:
            self._begin(name)
        self.cluster.events.at(
            self.cluster.chance.randrange(4_000), lambda: run_steps(Transactor(self, GONE).leave(), lambda _none: None)
        )
        run_steps(self._commit_plainly(), lambda _none: None)
        run_steps(self._fetch_plainly(), lambda _none: None)

    def finish(self) -> None:
        """One more transaction of each name must go through."""
        for name in NAMES:
            run_steps(Transactor(self, name).live_once(), self.last.append)

    def _begin(self, name: str) -> None:
        run_steps(Transactor(self, name).live(), lambda _none: self.replace(name))

    def replace(self, name: str) -> None:
        """Another one begins under the name; the one before may not know."""
        if not self.cluster.is_healing:
            self.cluster.events.at(self.cluster.chance.randrange(200), lambda: self._begin(name))

    def new_transaction(self, group: str) -> Transaction:
        self.transactions.append(Transaction(len(self.transactions), group))
        return self.transactions[-1]

    # A group without transactions.
    async def _commit_plainly(self) -> None:
        while not self.cluster.is_healing:
            self._asked_offset += 1
            topics = call_codec(OFFSET_COMMIT, 9).request.topics
            try:
                await self.ask(
                    groups.TOPIC,
                    OFFSET_COMMIT,
                    9,
                    lambda answer: answer.topics[0].partitions[0].error_code,
                    group_id=PLAIN_GROUP,
                    generation_id_or_member_epoch=-1,
                    member_id="",
                    group_instance_id=None,
                    topics=(
                        topics.make(
                            name=self.places[0].key.topic, partitions=(_offset(topics.partitions, self._asked_offset),)
                        ),
                    ),
                )
            except Refused:
                continue
            self.acknowledged_offset = self._asked_offset
            await self.sleep(self.cluster.chance.randrange(10, 150))

    async def _fetch_plainly(self) -> None:
        while not self.cluster.is_healing:
            shape = call_codec(OFFSET_FETCH, 9).request
            try:
                answer = await self.ask(
                    groups.TOPIC,
                    OFFSET_FETCH,
                    9,
                    lambda answer: answer.groups[0].error_code,
                    **fetch_request(shape, PLAIN_GROUP),
                )
            except Refused:
                continue
            self.told_offset = max(self.told_offset, told_offset(answer))
            await self.sleep(self.cluster.chance.randrange(10, 150))

    # Asking.
    async def sleep(self, ms: int) -> None:
        reply: Reply[None] = Reply()
        self._loop.call_later(ms, lambda: reply.give(None))
        await reply

    async def call(self, target: int, key: int, version: int, body: bytes) -> Body | None:
        """None where there was no answer."""
        link = self._links.get(target)
        if link is None:
            link = self._links[target] = self.cluster.network.link(CLIENT_ID, target, self._loop)
        reply: Reply[Body | PenstockError] = Reply()
        link.call(key, version, body, reply.give)
        answer = await reply
        return None if isinstance(answer, PenstockError) else answer

    async def ask(
        self,
        topic: str,
        key: int,
        version: int,
        code_in: Callable[[Any], ErrorCode],
        is_given_up: Callable[[], bool] | None = None,
        **values: Any,
    ) -> Any:
        """The coordinator that leads the topic's only partition."""
        codec = call_codec(key, version)
        body = codec.encode(codec.request.make(**values))
        return await self.ask_leader(
            TopicPartition(topic, 0), key, version, body, code_in, is_given_up or (lambda: self.cluster.is_healing)
        )

    async def ask_leader(
        self,
        partition: TopicPartition,
        key: int,
        version: int,
        body: bytes,
        code_in: Callable[[Any], ErrorCode],
        is_given_up: Callable[[], bool],
        *,
        is_patient: bool = True,
    ) -> Any:
        """Asks until it hears something that lasts; who is not patient gives up where nobody answers."""
        chance = self.cluster.chance
        while not is_given_up():
            state = self.cluster.state(partition)
            target = -1 if state is None else state.leader
            if chance.random() < 0.05:
                target = chance.choice(list(self.cluster.disks))
            found = await self.call(target, key, version, body) if target >= 0 else None
            if found is None and target >= 0 and not is_patient:
                raise SilenceError
            if found is not None:
                answer = call_codec(key, version).decode(bytes(found.frame[found.position :]))
                code = code_in(answer)
                if code == ErrorCode.none:
                    return answer
                leads_on = state is not None and target == state.leader and state == self.cluster.state(partition)
                if code == ErrorCode.out_of_order_sequence_number and leads_on:
                    raise Violation(
                        f"{partition}: its leader misses what it acknowledged to a transaction, or never got"
                    )
                if code not in AGAIN:
                    raise Refused(code.name)
            await self.sleep(chance.randrange(5, 60))
        raise Refused("nobody waits for it")


class Transactor:
    """One life of a producer under its transactional id."""

    def __init__(self, all_: Transactors, name: str) -> None:
        self._all = all_
        self._chance = all_.cluster.chance
        self._name = name
        self._group = f"group of {name}"
        self._is_newer = name != OLDER
        self._id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._is_last = False

    def _is_given_up(self) -> bool:
        return self._all.cluster.is_healing and not self._is_last

    async def live(self) -> None:
        """Until something is refused, or it ends in the middle."""
        try:
            await self._init()
            while not self._is_given_up():
                await self._transaction()
                await self._all.sleep(self._chance.randrange(100))
        except Refused as error:
            self._all.cluster.events.note(f"{self._name} of epoch {self._epoch}: {error}")

    async def leave(self) -> None:
        try:
            await self._init()
            await self._write(self._all.new_transaction(self._group), self._all.places[0])
        except (Refused, SilenceError):
            pass

    async def live_once(self) -> Transaction:
        self._is_last = True
        await self._init()
        transaction = self._all.new_transaction(self._group)
        await self._write(transaction, self._all.places[0])
        await self._commit_offset(transaction)
        await self._end(transaction, commit=True)
        return transaction

    async def _transaction(self) -> None:
        transaction = self._all.new_transaction(self._group)
        fate = self._chance.random()
        for _ in range(self._chance.randrange(1, 4)):
            try:
                await self._write(transaction, self._chance.choice(self._all.places))
            except SilenceError:
                await self._end(transaction, commit=False)
                raise Refused("it heard nothing, and aborted") from None
            if fate < 0.03:
                raise Refused("it vanishes")
            if fate < 0.06:
                self._all.replace(self._name)  # and goes on
                fate = 1.0
            if fate < 0.1:
                await self._all.sleep(self._chance.randrange(2 * TIMEOUT_MS))
        if self._chance.random() < 0.6:
            await self._commit_offset(transaction)
        await self._end(transaction, commit=self._chance.random() < 0.75)

    async def _ask(self, topic: str, key: int, version: int, code_in: Callable[[Any], ErrorCode], **values: Any) -> Any:
        return await self._all.ask(topic, key, version, code_in, self._is_given_up, **values)

    async def _ask_coordinator(self, key: int, version: int, **values: Any) -> Any:
        values |= {"transactional_id": self._name, "producer_id": self._id, "producer_epoch": self._epoch}
        return await self._ask(transactions.TOPIC, key, version, lambda answer: answer.error_code, **values)

    async def _init(self) -> None:
        # The last one may meet a slow connection, and nobody else that waits for its end.
        timeout_ms = 10 * TIMEOUT_MS if self._is_last else TIMEOUT_MS
        answer = await self._ask_coordinator(
            INIT_PRODUCER_ID, 4, transaction_timeout=timedelta(milliseconds=timeout_ms)
        )
        self._become(answer)

    def _become(self, answer: Any) -> None:
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = {}

    async def _write(self, transaction: Transaction, place: Place) -> None:
        if not self._is_newer:
            await self._add(place.key)
        number = len(transaction.written.get(place, ()))
        values = [b"%s%d:%d" % (b"x", transaction.number, number + one) for one in range(self._chance.randrange(1, 3))]
        sequence = self._sequences.get(place, 0)
        now_ms = self._all.cluster.events.clock.wall_ms()
        batch = build_batch(
            [(now_ms, None, value, ()) for value in values],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        version = 13 if self._is_newer else 11
        call = ProduceCall(place.key.topic, place.topic_id, place.key.partition, batch, -1, 1_000, self._name)
        answer = await self._all.ask_leader(
            place.key,
            PRODUCE,
            version,
            b"".join(encode_produce_call(call, version)),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
            self._is_given_up,
            is_patient=self._is_last or self._chance.random() < 0.7,
        )
        self._sequences[place] = sequence + len(values)
        transaction.written.setdefault(place, []).extend(values)
        base_offset = answer.responses[0].partition_responses[0].base_offset
        self._all.cluster.checks.acknowledged(place, base_offset, values)

    async def _add(self, key: TopicPartition) -> None:
        topics = call_codec(ADD_PARTITIONS, 3).request.v3_and_below_topics
        await self._ask(
            transactions.TOPIC,
            ADD_PARTITIONS,
            3,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=(topics.make(name=key.topic, partitions=(key.partition,)),),
        )

    async def _commit_offset(self, transaction: Transaction) -> None:
        if not self._is_newer:
            await self._ask_coordinator(ADD_OFFSETS, 3, group_id=self._group)
        version = 5 if self._is_newer else 3
        topics = call_codec(COMMIT_OFFSETS, version).request.topics
        offset = _offset(topics.partitions, transaction.number)
        await self._ask(
            groups.TOPIC,
            COMMIT_OFFSETS,
            version,
            lambda answer: answer.topics[0].partitions[0].error_code,
            transactional_id=self._name,
            group_id=self._group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=(topics.make(name=self._all.places[0].key.topic, partitions=(offset,)),),
        )
        transaction.has_offset = True

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.may_be_committed = commit
        answer = await self._ask_coordinator(END, 5 if self._is_newer else 4, committed=commit)
        transaction.is_committed = commit
        if self._is_newer:
            self._become(answer)


def _offset(shape: Any, offset: int) -> Any:
    return shape.make(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")


def fetch_request(shape: Any, group: str) -> dict[str, Any]:
    asked = shape.groups.make(group_id=group, member_id=None, member_epoch=-1, topics=None)
    return {"groups": (asked,), "require_stable": True}


def told_offset(answer: Any) -> int:
    return max((one.committed_offset for topic in answer.groups[0].topics for one in topic.partitions), default=-1)
