"""The short way of small Produce requests: those of one turn of the loop, of all connections, appended together.

A request is taken where it needs no more than to be written, and perhaps to be waited for. Nothing is refused here: what is not
plainly good is left to `handlers.produce`, with nothing done for it (docs/decisions/0006).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from penstock.base.errors import PenstockError
from penstock.handlers.api import Framed, Peer, Pending, Services
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.produce import produce_answer
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.protocol.produce import ProducePartition, ProduceTopic
from penstock.protocol.short_kernels import short_answer, short_request
from penstock.replication.append import AppendOutcome
from penstock.replication.partition import ACKS_ALL, Appended, Partition
from penstock.replication.wait_for_acks import AwaitedAppend, WaitForAcks
from penstock.storage.short_append import ShortAppend


class _Group:
    """The requests for one partition."""

    __slots__ = ("_name", "_principal", "append", "base_offset", "is_written", "partition", "takes_acks_all")

    def __init__(self, name: str, partition: Partition, append: ShortAppend) -> None:
        self._name = name
        self._principal: str | None = None
        self.partition = partition
        self.append = append
        self.base_offset = append.end_offset
        self.takes_acks_all = partition.takes_acks_all
        self.is_written = False

    def admits(self, principal: str, acks: int, services: Services) -> bool:
        if acks != 1 and (acks != ACKS_ALL or not self.takes_acks_all):
            return False
        if principal != self._principal:
            if not services.authoriser.allows(principal, Action.WRITE, Resource.TOPIC, self._name):
                return False
            self._principal = principal
        return True

    def write(self, services: Services) -> None:
        partition, append = self.partition, self.append
        has_moved = partition.finish_short(append)
        self.is_written = True
        traffic = partition.traffic
        traffic.produce_requests += append.count
        traffic.bytes_in += append.size_bytes
        traffic.messages_in += append.end_offset - self.base_offset
        services.fetch_waits.changed(partition.topic_partition)
        if has_moved:
            services.produce_waits.changed(partition.topic_partition)


def produce_short(
    requests: Sequence[tuple[bytes, Peer]], first: int, services: Services
) -> list[bytes | Pending[Any] | None]:
    """Frames of the answers to the requests from the one at `first` on, up to one that must go the long way.

    Where followers must have it first the answer waits: that frame, or what says why not. None stands for one that could not be written after all. In both cases nothing was done for that request.
    """
    if services.heavy_appends.is_busy:
        return []
    groups: dict[object, _Group] = {}
    taken = []
    for number in range(first, len(requests)):
        frame, peer = requests[number]
        asked = short_request(frame)
        if asked is None:
            break
        topic, partition, acks, start, end = asked[:5]
        try:
            group = groups.get((topic, partition)) or _open(groups, topic, partition, services)
            if group is None or not group.admits(peer.principal, acks, services):
                break
            base_offset = group.append.take(frame, start, end)
        except PenstockError:
            break
        if base_offset < 0:
            break
        taken.append((group, frame, asked, base_offset, group.append.end_offset))
    for group in dict.fromkeys(groups.values()):
        if group.append.count:
            with suppress(PenstockError):
                group.write(services)
    answers: list[bytes | Pending[Any] | None] = []
    for group, frame, asked, base_offset, end_offset in taken:
        if not group.is_written:
            answers.append(None)
            continue
        log = group.partition.log
        said = short_answer(frame, asked, base_offset, log.log_start_offset)
        if asked[2] == ACKS_ALL and log.high_watermark < end_offset:
            answers.append(_said_later(said, group.partition, base_offset, end_offset, asked[9], services))
        else:
            answers.append(said)
    return answers


def _said_later(
    said: bytes, partition: Partition, base_offset: int, end_offset: int, timeout_ms: int, services: Services
) -> Pending[Any]:
    waits = services.produce_waits
    leader_epoch = partition.leader_epoch
    pending: Pending[Any] = Pending(lambda: waits.drop(operation))

    def answer(ended: WaitForAcks) -> None:
        if not ended.errors and not ended.timed_out:
            pending.resolve(Framed(said))
            return
        key = partition.topic_partition
        asked = ProduceTopic(key.topic, partition.topic_id, [ProducePartition(key.partition, None)])
        appended = Appended(base_offset, end_offset, -1, partition.log.log_start_offset, False, False, leader_epoch)
        failed = {0: ended.errors[key]} if ended.errors else {}
        late = frozenset({0}) if ended.timed_out else frozenset()
        pending.resolve(produce_answer([asked], [AppendOutcome(appended, None)], failed, late))

    operation = WaitForAcks([AwaitedAppend(partition, leader_epoch, end_offset, ACKS_ALL)], answer)
    waits.finish_or_wait(operation, operation.keys, timeout_ms)
    return pending


def _open(groups: dict[object, _Group], topic: str | bytes, number: int, services: Services) -> _Group | None:
    """The group of a partition that was not asked for yet by this name or id; None where it takes the long way only."""
    name = services.image.names_by_id.get(topic) if isinstance(topic, bytes) else topic
    partition = None if name is None or name in INTERNAL_TOPICS else services.partitions.find(name, number)
    if name is None or partition is None:
        return None
    group = groups.get(partition)
    if group is None:
        append = partition.begin_short()
        if append is None:
            return None
        group = groups[partition] = _Group(name, partition, append)
    groups[(topic, number)] = group
    return group
