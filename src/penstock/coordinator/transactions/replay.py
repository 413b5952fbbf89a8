"""Transactional ids from the records of `__transaction_state`."""

from __future__ import annotations

from penstock.coordinator import replay
from penstock.coordinator.transactions.shard import Shard
from penstock.protocol.transaction_records import decode_transaction_key, decode_transaction_value
from penstock.records.batch import Batch


class Replay(replay.Replay):
    def __init__(self, shard: Shard, first_offset: int) -> None:
        super().__init__(first_offset)
        self._shard = shard

    def record(self, batch: Batch, key: bytes, value: bytes | None) -> bool:
        transactional_id = decode_transaction_key(key)
        if transactional_id is None:
            return False
        self._shard.replay(transactional_id, None if value is None else decode_transaction_value(value))
        return True
