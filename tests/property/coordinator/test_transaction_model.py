"""Producers, coordinator and logs against a plain model: what is committed is seen, in order, and nothing else; through kills, time,
retries and producers of the past."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.transaction_requests import Stamp
from tests.support.transaction_world import TransactionWorld

PLACES = (("t", 0), ("t", 1))
IDS = ("old", "new")
TIMEOUT_MS = 60_000
CHECK_MS = 10_000


class Log:
    """One partition, as the plainest thing that could hold it: entries by offset, and which of them count."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, bytes]] = []  # (transactional id, number of its transaction, value)
        self.ended: dict[tuple[str, int], bool] = {}

    def visible(self) -> list[bytes]:
        values = []
        for name, number, value in self.entries:
            if (name, number) not in self.ended:
                break  # the first that is open hides what follows
            if self.ended[name, number]:
                values.append(value)
        return values


class Id:
    """A transactional id: in the newer protocol, or in the older one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bumps = name == "new"
        self.stamp: Stamp | None = None
        self.past: list[Stamp] = []
        self.number = 0
        self.added: set[tuple[str, int]] = set()
        self.is_open = False
        self.open_ms = 0
        self.offset: int | None = None
        self.sequences: dict[tuple[str, int], int] = {}


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = TransactionWorld({"t": 2})
        self.logs = {place: Log() for place in PLACES}
        self.ids = {name: Id(name) for name in IDS}
        self.committed_offset = -1
        self.value = 0

    # What ends a transaction.
    def _end(self, one: Id, *, commit: bool) -> None:
        for log in self.logs.values():
            log.ended[one.name, one.number] = commit
        if commit and one.offset is not None:
            self.committed_offset = one.offset
        one.number += 1
        one.added, one.is_open, one.offset = set(), False, None

    def _become(self, one: Id, stamp: Stamp) -> None:
        if one.stamp is not None:
            one.past.append(one.stamp)
        one.stamp = stamp
        one.sequences = {}

    # Requests.
    @rule(name=st.sampled_from(IDS), keeps=st.booleans())
    def start_a_producer(self, name: str, keeps: bool) -> None:
        one = self.ids[name]
        expected = one.stamp if keeps and one.stamp is not None else Stamp("none")
        said = self.world.requests.init(name, TIMEOUT_MS, expected.producer_id, expected.epoch)
        if one.is_open:
            assert said.error == "concurrent_transactions"
            self._end(one, commit=False)
            said = self.world.requests.init(name, TIMEOUT_MS)
        elif said.error == "producer_fenced":
            said = self.world.requests.init(name, TIMEOUT_MS)  # it timed out, and was fenced without being told
        assert said.error == "none"
        self._become(one, said)

    @precondition(lambda self: any(one.stamp for one in self.ids.values()))
    @rule(name=st.sampled_from(IDS), place=st.sampled_from(PLACES))
    def write(self, name: str, place: tuple[str, int]) -> None:
        one = self.ids[name]
        if one.stamp is None:
            return
        requests = self.world.requests
        if not one.bumps and place not in one.added:
            said = requests.add_partitions(name, one.stamp, [place])[place]
            if said == "producer_fenced":
                return
            assert said == "none"
            self._opened(one)
            one.added.add(place)
        self.value += 1
        value, sequence = b"%d" % self.value, one.sequences.get(place, 0)
        version = 12 if one.bumps else 11
        error, _ = requests.produce(name, one.stamp, *place, [value], sequence=sequence, version=version)
        if error == "invalid_producer_epoch":
            return  # fenced by a timeout
        assert error == "none", error
        if one.bumps:
            self._opened(one)
            one.added.add(place)
        self.logs[place].entries.append((name, one.number, value))
        one.sequences[place] = sequence + 1
        again, _ = requests.produce(name, one.stamp, *place, [value], sequence=sequence, version=version)
        assert again == "none", "sent twice, written once"

    def _opened(self, one: Id) -> None:
        if not one.is_open:
            one.is_open, one.open_ms = True, self.world.world.clock.wall_ms()

    @precondition(lambda self: any(one.stamp for one in self.ids.values()))
    @rule(name=st.sampled_from(IDS), offset=st.integers(0, 99))
    def commit_an_offset(self, name: str, offset: int) -> None:
        one = self.ids[name]
        if one.stamp is None or any(other.offset is not None for other in self.ids.values() if other is not one):
            return
        requests = self.world.requests
        if not one.bumps:
            if requests.add_offsets(name, one.stamp, "g") != "none":
                return
            self._opened(one)
        said = requests.commit_offset(name, one.stamp, "g", ("t", 0), offset, version=5 if one.bumps else 3)
        if said == "invalid_producer_epoch":
            return
        assert said == "none", said
        self._opened(one)
        one.offset = offset
        assert requests.committed("g", ("t", 0), require_stable=True)[0] == "unstable_offset_commit"

    @precondition(lambda self: any(one.is_open for one in self.ids.values()))
    @rule(name=st.sampled_from(IDS), commit=st.booleans(), twice=st.booleans())
    def end(self, name: str, commit: bool, twice: bool) -> None:
        one = self.ids[name]
        if not one.is_open or one.stamp is None:
            return
        version = 5 if one.bumps else 4
        said = self.world.requests.end(name, one.stamp, commit=commit, version=version)
        assert said.error == "none"
        if twice:
            assert self.world.requests.end(name, one.stamp, commit=commit, version=version) == said
        self._end(one, commit=commit)
        if one.bumps:
            self._become(one, said)

    # Those of the past.
    @precondition(lambda self: any(one.past for one in self.ids.values()))
    @rule(name=st.sampled_from(IDS), place=st.sampled_from(PLACES), pick=st.integers(0, 5))
    def a_late_write_is_refused(self, name: str, place: tuple[str, int], pick: int) -> None:
        one = self.ids[name]
        if not one.past:
            return
        stamp = one.past[-1 - pick % len(one.past)]
        if stamp == one.stamp:
            return
        for version in (11, 12):
            error, _ = self.world.requests.produce(name, stamp, *place, [b"late"], sequence=0, version=version)
            assert error != "none"

    @precondition(lambda self: any(one.past for one in self.ids.values()))
    @rule(name=st.sampled_from(IDS), commit=st.booleans())
    def a_late_end_decides_nothing(self, name: str, commit: bool) -> None:
        one = self.ids[name]
        if one.is_open and one.past and one.past[-1] != one.stamp:
            said = self.world.requests.end(name, one.past[-1], commit=commit, version=5 if one.bumps else 4)
            assert said.error in ("producer_fenced", "invalid_producer_id_mapping")

    @rule(place=st.sampled_from(PLACES), version=st.sampled_from([10, 11]))
    def a_write_outside_of_any_transaction_is_refused(self, place: tuple[str, int], version: int) -> None:
        one = self.ids["old"]
        if one.stamp is None or place in one.added:
            return
        error, _ = self.world.requests.produce(
            "old", one.stamp, *place, [b"stray"], sequence=one.sequences.get(place, 0), version=version
        )
        assert error in ("transaction_abortable" if version == 11 else "invalid_txn_state", "invalid_producer_epoch")

    # The world.
    @rule(ms=st.sampled_from([1, 5_000, 30_000, 80_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)
        now_ms = self.world.world.clock.wall_ms()
        states = self.world.requests.states()
        for one in self.ids.values():
            if not one.is_open:
                continue
            if states[one.name] == "CompleteAbort":
                assert now_ms - one.open_ms > TIMEOUT_MS
                self._end(one, commit=False)
            else:
                assert now_ms - one.open_ms <= TIMEOUT_MS + CHECK_MS, "open past its timeout"

    @rule()
    def the_broker_is_killed(self) -> None:
        before = self.world.world.clock.wall_ms()
        self.world.restart()
        # The next life's clock goes on where the last one's stood.
        self.world.world.clock.advance(max(before - self.world.world.clock.wall_ms(), 0))

    # What holds.
    @invariant()
    def readers_of_committed_records_see_the_model(self) -> None:
        for place, log in self.logs.items():
            assert self.world.visible(*place) == log.visible()

    @invariant()
    def offsets_are_those_of_committed_transactions(self) -> None:
        _, offset = self.world.requests.committed("g", ("t", 0), require_stable=False)
        assert offset == self.committed_offset

    def teardown(self) -> None:
        self.world.advance(TIMEOUT_MS + 2 * CHECK_MS)
        for place in PLACES:
            assert self.world.open_transactions(*place) == 0
        assert self.world.requests.committed("g", ("t", 0), require_stable=True)[0] == "none"


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
