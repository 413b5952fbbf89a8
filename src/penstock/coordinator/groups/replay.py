"""Groups and offsets from the records of `__consumer_offsets`."""

from __future__ import annotations

from penstock.coordinator import replay
from penstock.coordinator.groups.shard import Shard
from penstock.protocol.group_records import (
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from penstock.records.batch import Batch
from penstock.records.build import ControlType


class Replay(replay.Replay):
    def __init__(self, shard: Shard, first_offset: int) -> None:
        super().__init__(first_offset)
        self._shard = shard

    def record(self, batch: Batch, key: bytes, value: bytes | None) -> bool:
        found = decode_key(key)
        if found is None:
            return False
        content: OffsetValue | GroupValue | None = None
        if value is not None:
            content = decode_offset_value(value) if isinstance(found, OffsetKey) else decode_group_value(value)
        if batch.is_transactional and isinstance(found, OffsetKey):
            assert content is None or isinstance(content, OffsetValue)
            self._shard.hold(batch.producer_id, found, content)
        else:
            self._shard.replay(found, content)
        return True

    def control(self, batch: Batch, control_type: int) -> None:
        if control_type in (ControlType.COMMIT, ControlType.ABORT):
            self._shard.end_transaction(batch.producer_id, commit=control_type == ControlType.COMMIT)
