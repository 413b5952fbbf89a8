"""The embedded store survives an end at any byte of its journal, and confirms only what is synced."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.forgetful_files import Cut, ForgetfulFiles

from penstock.base.clock import ManualClock
from penstock.base.errors import CorruptFileError
from penstock.base.files import SystemFiles
from penstock.metadata import embedded
from penstock.metadata.embedded import JOURNAL_NAME, EmbeddedStore
from penstock.metadata.journal import Entry, encode, read_entries
from penstock.metadata.store import (
    Answered,
    Change,
    Committed,
    Create,
    Delete,
    Event,
    Read,
    ReadKind,
    Refused,
    SetData,
    Transaction,
    Watched,
)
from penstock.metadata.tree import Kept, Made, Removed, Written


def open_store(directory: Path) -> EmbeddedStore:
    return EmbeddedStore(SystemFiles(), str(directory), ManualClock())


def settle(store: EmbeddedStore) -> list[Event]:
    position = store.journal_position
    store.sync()
    store.synced(position)
    return store.take_events()


def data_by_path(store: EmbeddedStore) -> dict[str, bytes]:
    return {node.path: node.data for node in store.nodes()}


def create(path: str, data: bytes = b"") -> Transaction:
    return Transaction(operations=(Create(path=path, data=data),))


def test_nothing_is_confirmed_before_it_is_synced(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    token = store.submit(create("/a", b"1"))
    assert store.sync_due
    assert store.take_events() == []
    (event,) = settle(store)
    assert isinstance(event, Committed)
    assert (event.token, event.results) == (token, ("/a",))
    assert not store.sync_due


def test_answers_and_watches_come_in_one_order(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.submit(create("/a"))
    store.submit(Read(kind=ReadKind.DATA, path="/a", watch=True))
    store.submit(Transaction(operations=(SetData(path="/a", data=b"2"),)))
    store.submit(Read(kind=ReadKind.DATA, path="/a"))
    store.submit(create("/a"))
    kinds = [type(event) for event in settle(store)]
    assert kinds == [Committed, Answered, Watched, Committed, Answered, Refused]


def test_a_watch_tells_what_changed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.submit(Read(kind=ReadKind.CHILDREN, path="/", watch=True))
    store.submit(create("/a"))
    assert Watched(path="/", change=Change.CHILDREN) in settle(store)


def test_what_was_committed_is_there_again_and_ephemerals_are_not(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.submit(create("/a", b"1"))
    store.submit(Transaction(operations=(SetData(path="/a", data=b"2"), Create(path="/e", ephemeral=True))))
    settle(store)
    store.close()
    again = open_store(tmp_path)
    assert data_by_path(again) == {"/": b"", "/a": b"2"}
    assert again.take_events() == []
    assert [node.version for node in again.nodes() if node.path == "/a"] == [1]


def test_an_end_at_every_byte_of_the_journal_leaves_whole_transactions(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    store = open_store(source)
    states: dict[int, dict[str, bytes]] = {store.journal_position: data_by_path(store)}
    for number in range(6):
        store.submit(
            Transaction(operations=(Create(path=f"/n{number}", data=b"x" * number), Create(path=f"/n{number}/c")))
        )
        states[store.journal_position] = data_by_path(store)
    store.close()
    content = (source / JOURNAL_NAME).read_bytes()
    target = tmp_path / "target"
    target.mkdir()
    for length in range(len(content) + 1):
        for path in target.iterdir():
            path.unlink()
        (target / JOURNAL_NAME).write_bytes(content[:length])
        again = open_store(target)
        expected = states[max((end for end in states if end <= length), default=min(states))]
        assert data_by_path(again) == expected, length
        again.submit(create("/after"))
        again.close()
        assert "/after" in data_by_path(open_store(target))


def test_a_garbled_record_ends_the_journal_and_is_put_aside(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.submit(create("/a"))
    kept = store.journal_position
    store.submit(create("/b"))
    store.close()
    path = tmp_path / JOURNAL_NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert set(data_by_path(open_store(tmp_path))) == {"/", "/a"}
    assert (tmp_path / f"{JOURNAL_NAME}.cut").read_bytes() == bytes(content[kept:])


@pytest.mark.parametrize("garbled", [0, 4, 20], ids=["length", "checksum", "body"])
def test_a_bad_record_in_the_middle_is_told_with_what_was_lost(tmp_path: Path, garbled: int) -> None:
    store = open_store(tmp_path)
    ends = []
    for path in ("/a", "/b", "/c", "/d"):
        store.submit(create(path))
        settle(store)
        ends.append(store.journal_position)
    store.close()
    journal = tmp_path / JOURNAL_NAME
    content = bytearray(journal.read_bytes())
    content[ends[0] + garbled] ^= 0x55
    journal.write_bytes(content)
    again = open_store(tmp_path)
    assert data_by_path(again).keys() >= {"/a"}
    assert "/b" not in data_by_path(again)
    assert again.cut is not None
    assert (again.cut.position, again.cut.size_bytes, again.cut.entries_after) == (ends[0], ends[3] - ends[0], 2)
    assert "2 good ones" in str(again.cut)
    again.close()
    whole = open_store(tmp_path)
    assert whole.cut is None


def rewrite_steps(store: EmbeddedStore) -> list[str]:
    """Begins a rewrite with a submission in each gap; the paths submitted."""
    draft = store.begin_rewrite()
    assert draft is not None
    store.submit(create("/while-drafted"))
    made = draft()
    store.submit(create("/before-swap"))
    place = store.swap_journal(made)
    position = store.journal_position
    store.submit(create("/after-swap"))
    assert store.take_events() == []
    place()
    store.synced(position)
    return ["/while-drafted", "/before-swap", "/after-swap"]


def test_a_journal_is_written_anew_while_the_store_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 2000)
    store = open_store(tmp_path)
    assert store.begin_rewrite() is None
    store.submit(create("/a"))
    for number in range(100):
        store.submit(Transaction(operations=(SetData(path="/a", data=b"%d" % number),)))
    settle(store)
    before = (tmp_path / JOURNAL_NAME).stat().st_size
    paths = rewrite_steps(store)
    assert [event.token for event in store.take_events() if isinstance(event, Committed)] == [102, 103]
    assert [event.token for event in settle(store) if isinstance(event, Committed)] == [104]
    assert (tmp_path / JOURNAL_NAME).stat().st_size < before / 2
    assert store.begin_rewrite() is None
    nodes = store.nodes()
    store.close()
    again = open_store(tmp_path)
    assert again.nodes() == nodes
    assert {"/a", *paths} <= data_by_path(again).keys()


def test_what_was_confirmed_survives_a_power_cut_at_every_step_of_a_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 2000)

    def until(step: int | None) -> tuple[ForgetfulFiles, set[str], int]:
        files = ForgetfulFiles()
        files.make_directory("/d")
        files.sync_directory("")
        store = EmbeddedStore(files, "/d", ManualClock())
        store.submit(create("/a"))
        for number in range(100):
            store.submit(Transaction(operations=(SetData(path="/a", data=b"%d" % number),)))
        settle(store)
        first = files.steps
        confirmed = {"/a"}
        files.fail_at = None if step is None else first + step
        try:
            rewrite_steps(store)
            confirmed |= {"/while-drafted", "/before-swap"}
            settle(store)
            confirmed.add("/after-swap")
        except Cut:
            pass
        return files, confirmed, files.steps - first

    steps = until(None)[2]
    assert steps > 5
    for step in range(steps + 1):
        files, confirmed, _ = until(step)
        files.forget_everything_unsynced()
        again = EmbeddedStore(files, "/d", ManualClock())
        assert confirmed <= data_by_path(again).keys()
        assert data_by_path(again)["/a"] == b"99"
        assert again.cut is None


def test_an_end_between_swap_and_place_keeps_what_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 100)
    store = open_store(tmp_path)
    for path in ("/a", "/b", "/c", "/d"):
        store.submit(create(path))
        store.submit(Transaction(operations=(SetData(path=path, data=bytes(400)), SetData(path=path, data=b""))))
    settle(store)
    draft = store.begin_rewrite()
    assert draft is not None
    store.swap_journal(draft())
    store.submit(create("/late"))
    store.close()
    assert "/late" in data_by_path(open_store(tmp_path))


def test_a_torn_end_is_told_as_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for path in ("/a", "/b"):
        store.submit(create(path))
    settle(store)
    store.close()
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes()[:-3])
    again = open_store(tmp_path)
    assert again.cut is not None
    assert again.cut.entries_after == 0
    assert "not finished" in str(again.cut)


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b"something else")
    with pytest.raises(CorruptFileError, match="not a metadata journal"):
        open_store(tmp_path)


def test_a_journal_written_anew_keeps_nodes_versions_and_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.submit(Transaction(operations=(Create(path="/q"), Create(path="/q/n-", sequential=True))))
    store.submit(Transaction(operations=(Delete(path="/q/n-0000000000"),)))
    for number in range(50):
        store.submit(Transaction(operations=(SetData(path="/q", data=b"%d" % number),)))
    before = list(store.nodes())
    store.close()
    grown = (tmp_path / JOURNAL_NAME).stat().st_size
    monkeypatch.setattr(embedded, "REWRITE_BYTES_MIN", 100)
    again = open_store(tmp_path)
    assert list(again.nodes()) == before
    assert (tmp_path / JOURNAL_NAME).stat().st_size < grown / 4
    again.submit(Transaction(operations=(Create(path="/q/n-", sequential=True),)))
    assert "/q/n-0000000001" in data_by_path(again)
    again.close()
    assert "/q/n-0000000001" in data_by_path(open_store(tmp_path))
    assert not (tmp_path / f"{JOURNAL_NAME}.new").exists()


paths = st.text(min_size=1, max_size=20).map("/".__add__)
numbers = st.integers(0, 2**62)
effects = st.one_of(
    st.builds(Made, paths, st.binary(max_size=30), numbers),
    st.builds(Written, paths, st.binary(max_size=30)),
    st.builds(Removed, paths),
    st.builds(Kept, paths, st.binary(max_size=30), *[numbers] * 8),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.builds(Entry, numbers, numbers, st.lists(effects, max_size=5).map(tuple)), max_size=5))
def test_entries_come_back_from_their_bytes(entries: list[Entry]) -> None:
    content = b"PNSTKMD1" + b"".join(map(encode, entries))
    assert read_entries(content) == (entries, len(content))
