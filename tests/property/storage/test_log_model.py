"""A state machine over one log: whatever is done to it, it equals a plain list (rows S3 to S21)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.log_checks import rows_of
from tests.support.log_world import LogWorld, kill, power_cut, strict_power_cut

from penstock.records.batch import Codec
from penstock.storage.answers import Bound
from penstock.storage.timestamps import offset_for_timestamp, offset_of_max_timestamp

PRODUCERS = st.sampled_from((-1, -1, 3, 4))
KEYS = st.sampled_from((b"a", b"b", b"c", b"d"))


class LogMachine(RuleBasedStateMachine):
    world: LogWorld

    @initialize(
        segment_bytes=st.sampled_from((300, 700, 5000)),
        interval=st.sampled_from((0, 100, 400)),
        compacted=st.booleans(),
        preallocate=st.booleans(),
    )
    def start(self, segment_bytes: int, interval: int, compacted: bool, preallocate: bool) -> None:
        self.world = LogWorld(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            cleanup_policy="compact" if compacted else "delete",
            preallocate=str(preallocate).lower(),
            delete_retention_ms=50,
            retention_ms=-1,
        )
        self.open_transactions: set[int] = set()

    @rule(
        count=st.integers(1, 4),
        key=KEYS,
        size=st.integers(0, 40),
        codec=st.sampled_from(list(Codec)),
        producer_id=PRODUCERS,
        late_ms=st.integers(0, 100),
        tombstone=st.booleans(),
        new_epoch=st.booleans(),
    )
    def append(
        self,
        count: int,
        key: bytes,
        size: int,
        codec: Codec,
        producer_id: int,
        late_ms: int,
        tombstone: bool,
        new_epoch: bool,
    ) -> None:
        world = self.world
        world.clock.advance(7)
        stamp = world.clock.wall_ms() - late_ms
        value = None if tombstone else b"v" * size
        records = [(stamp + slot, key, value, (("h", b"1"),) if slot % 2 else ()) for slot in range(count)]
        epoch = world.epoch + 1 if new_epoch else world.epoch
        world.append(records, codec=codec, producer_id=producer_id, epoch=epoch)

    @rule(producer_id=st.sampled_from((8, 9)), key=KEYS)
    def append_in_transaction(self, producer_id: int, key: bytes) -> None:
        self.world.append([(self.world.clock.wall_ms(), key, b"t", ())], producer_id=producer_id, transactional=True)
        self.open_transactions.add(producer_id)

    @precondition(lambda self: self.open_transactions)
    @rule(commit=st.booleans(), data=st.data())
    def end_transaction(self, commit: bool, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open_transactions)))
        self.world.end_transaction(producer_id, commit=commit)
        self.open_transactions.discard(producer_id)

    @rule()
    def roll(self) -> None:
        self.world.log.roll()

    @rule()
    def flush(self) -> None:
        self.world.flush()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        log = self.world.log
        offset = log.log_start_offset + int((log.end_offset - log.log_start_offset) * share)
        self.world.truncate(offset)
        self._reread_transactions()

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.world.log
        stable = log.last_stable_offset
        self.world.delete_records(log.log_start_offset + int((stable - log.log_start_offset) * share))
        self.world.retain()

    @rule(map_bytes=st.sampled_from((72, 120, 4096)), wait_ms=st.sampled_from((0, 100)))
    def compact(self, map_bytes: int, wait_ms: int) -> None:
        if self.world.config.compact:
            self.world.clock.advance(wait_ms)
            self.world.compact(map_bytes)

    @rule()
    def restart(self) -> None:
        self.world.close()
        self.world.open()
        self._reread_transactions()

    @rule()
    def killed(self) -> None:
        self.world.crash(kill, keeps_cache=True)
        self._reread_transactions()

    @rule(seed=st.integers(0, 1000))
    def power_fails(self, seed: int) -> None:
        self.world.crash(power_cut(seed) if seed else strict_power_cut, keeps_cache=False)
        self._reread_transactions()

    def _reread_transactions(self) -> None:
        self.open_transactions = set(self.world.log.producers.open_transactions.values())

    @invariant()
    def equals_the_list(self) -> None:
        self.world.check()

    @invariant()
    def reads_from_anywhere(self) -> None:
        world = self.world
        log = world.log
        for offset in range(log.log_start_offset, log.end_offset + 1, 3):
            assert rows_of(log, from_offset=offset) == [row for row in world.rows if row.offset >= offset]
        stable = rows_of(log, bound=Bound.LAST_STABLE)
        assert all(row.offset < log.last_stable_offset for row in stable)

    @invariant()
    def finds_timestamps(self) -> None:
        world = self.world
        for row in world.rows[::4]:
            found = offset_for_timestamp(world.log, row.timestamp)
            first = next(known for known in world.rows if known.timestamp >= row.timestamp)
            assert found is not None
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)
        newest = offset_of_max_timestamp(world.log)
        if newest is not None and world.rows:
            assert newest.timestamp >= max(row.timestamp for row in world.rows)


LogMachine.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestLogEqualsAList = LogMachine.TestCase
