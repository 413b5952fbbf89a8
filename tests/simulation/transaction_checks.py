"""What must hold of transactions when all is healed.

- What was told to be committed is visible, all of it; what its producer did not want committed is not; of a commit whose
  answer was lost all is visible or nothing, offsets included.
- Nothing is open: every log is stable to its end. What a broker says of aborted transactions fits the markers in its log.
- A group's offset is that of its last committed transaction; one that was acknowledged or told is not lost.
- Every transactional id can be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.client.committed import committed_batches
from penstock.client.messages import call_codec
from penstock.drivers import groups
from penstock.protocol.fetch import AbortedTransaction
from penstock.protocol.group_records import OffsetKey, decode_key, decode_offset_value
from penstock.records import payload
from penstock.records.batch import Batch, records_slice, scan
from penstock.records.build import ControlType, read_control
from penstock.storage.answers import Bound
from penstock.storage.partition_log import PartitionLog
from tests.simulation.checks import Violation
from tests.simulation.network import frame_of
from tests.simulation.transactors import NAMES, OFFSET_FETCH, PLAIN_GROUP, Transactors, fetch_request, told_offset

if TYPE_CHECKING:
    from tests.simulation.broker import SimBroker
    from tests.simulation.cluster import SimCluster


class _Row(NamedTuple):
    offset: int
    key: bytes
    value: bytes


class _Contents(NamedTuple):
    visible: list[_Row]
    """To who reads what is committed, by the markers."""
    told: list[int]
    """The offsets of the same, by what the broker says of aborted transactions."""


def check_transactions(cluster: SimCluster, transactors: Transactors) -> None:
    values: dict[TopicPartition, set[bytes]] = {}
    for place in transactors.places:
        key = place.key
        rows = _visible(cluster, key)
        values[key] = {row.value for row in rows}
        if len(values[key]) != len(rows):
            raise Violation(f"{key}: something is visible twice")
    offsets = _group_offsets(cluster)
    visible: dict[str, int] = {}
    for one in transactors.transactions:
        found = {value in values[place.key] for place, written in one.written.items() for value in written}
        stray = any(value.startswith(b"x%d:" % one.number) for kept in values.values() for value in kept)
        if one.has_offset:
            found.add((one.group, one.number) in offsets)
        if (one.group, one.number) in offsets:
            visible[one.group] = one.number
        name = f"transaction {one.number} of {one.group}"
        if len(found) > 1:
            raise Violation(f"{name} is visible in part")
        if one.is_committed and False in found:
            raise Violation(f"{name} was committed and is not visible")
        if not one.may_be_committed and (stray or True in found or (one.group, one.number) in offsets):
            raise Violation(f"{name} was not committed and is visible")
    _check_groups(cluster, transactors, visible)
    if len(transactors.last) < len(NAMES):
        raise Violation(f"after all is healed only {len(transactors.last)} transactional ids can be used")


def _check_groups(cluster: SimCluster, transactors: Transactors, visible: dict[str, int]) -> None:
    for group, number in visible.items():
        told = _told(cluster, group)
        if told != number:
            raise Violation(f"{group}: offset {told}, and the last transaction committed {number}")
    told = _told(cluster, PLAIN_GROUP)
    if told < max(transactors.acknowledged_offset, transactors.told_offset):
        raise Violation(
            f"{PLAIN_GROUP}: offset {told}, and {transactors.acknowledged_offset} was acknowledged, {transactors.told_offset} told"
        )


def _told(cluster: SimCluster, group: str) -> int:
    """What the coordinator says."""
    codec = call_codec(OFFSET_FETCH, 9)
    body = codec.encode(codec.request.make(**fetch_request(codec.request, group)))
    answers: list[bytes] = []
    _leader(cluster, TopicPartition(groups.TOPIC, 0)).serve(
        frame_of(OFFSET_FETCH, 9, 0, body), answers.append, lambda: None
    )
    if not answers:
        raise Violation(f"{group}: its coordinator has no answer at once")
    answer = codec.decode(answers[0][9:])
    if answer.groups[0].error_code != 0:
        raise Violation(f"{group}: {answer.groups[0].error_code.name}")
    return told_offset(answer)


def _leader(cluster: SimCluster, key: TopicPartition) -> SimBroker:
    state = cluster.state(key)
    if state is None or state.leader not in cluster.brokers:
        raise Violation(f"{key}: after all is healed nobody leads")
    return cluster.brokers[state.leader]


def _visible(cluster: SimCluster, key: TopicPartition) -> list[_Row]:
    log = _leader(cluster, key).partitions.get(*key).log
    if log.last_stable_offset != log.end_offset:
        raise Violation(f"{key}: stable to {log.last_stable_offset} of {log.end_offset}: a transaction hangs")
    contents = _read(log)
    if [row.offset for row in contents.visible] != contents.told:
        raise Violation(f"{key}: what the broker says of aborted transactions is not what its markers say")
    return contents.visible


def _group_offsets(cluster: SimCluster) -> dict[tuple[str, int], None]:
    """Each group's committed offsets in their order."""
    found: dict[tuple[str, int], None] = {}
    for row in _visible(cluster, TopicPartition(groups.TOPIC, 0)):
        key = decode_key(row.key)
        if isinstance(key, OffsetKey) and key.group != PLAIN_GROUP and row.value:
            found[key.group, decode_offset_value(row.value).offset] = None
    return found


def _read(log: PartitionLog) -> _Contents:
    visible: list[_Row] = []
    told: list[int] = []
    pending: dict[int, list[_Row]] = {}
    offset = log.log_start_offset
    while offset < log.end_offset:
        found = log.read(offset, bytes_max=1 << 20, bound=Bound.LAST_STABLE)
        assert found.slice is not None
        data = found.slice.read()
        batches = scan(data).batches
        aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in found.aborted or ()]
        kept = committed_batches(data, batches, aborted)
        told += [offset for batch in kept for offset in range(batch.base_offset, batch.last_offset + 1)]
        for batch in batches:
            offset = batch.last_offset + 1
            if batch.is_control:
                _, control_type = read_control(data, *records_slice(batch))
                ended = pending.pop(batch.producer_id, [])
                if control_type == ControlType.COMMIT:
                    visible += ended
            elif batch.is_transactional:
                pending.setdefault(batch.producer_id, []).extend(_rows(data, batch))
            else:
                visible += _rows(data, batch)
    visible.sort()
    return _Contents(visible, told)


def _rows(data: bytes, batch: Batch) -> list[_Row]:
    columns = payload.columns(data, *records_slice(batch), batch.record_count)
    keys = zip(columns.key_start, columns.key_length, strict=True)
    values = zip(columns.value_start, columns.value_length, strict=True)
    return [
        _Row(batch.base_offset + number, _bytes(data, *key), _bytes(data, *value))
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def _bytes(data: bytes, start: int, length: int) -> bytes:
    return data[start : start + length] if length > 0 else b""
