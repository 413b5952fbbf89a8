"""Recovery by its kernel gives what a plain walk gives, batch by batch: cut, indexes, epochs, producers (row S16)."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.property.records.strategies import broken
from tests.support.forgetful_files import ForgetfulFiles

from penstock.base.errors import CorruptRecordError
from penstock.records.batch import STOP_SENTENCES, Batch, Codec, scan
from penstock.records.build import build_batch, build_end_marker
from penstock.storage import harvest, stretches
from penstock.storage.checkpoints import EpochStart
from penstock.storage.offset_index import OffsetIndex
from penstock.storage.producer_replay import end_marker
from penstock.storage.producer_state import EndMarker, Producers
from penstock.storage.recovery import SegmentReport, recover_segment
from penstock.storage.segment import RELATIVE_OFFSET_MAX, Indexer
from penstock.storage.time_index import TimeIndex

BASE = 100
PATH = "/t-0"


class Step(NamedTuple):
    """One batch: who sent it, what kind, how far its offsets and timestamps jump."""

    producer_id: int
    kind: str
    gap: int
    timestamp: int
    size: int
    producer_epoch: int
    leader_epoch: int


STEPS = st.builds(
    Step,
    producer_id=st.sampled_from((-1, 0, 1, 2, 3, 40, 2**63 - 1)),
    kind=st.sampled_from(("data", "data", "data", "transaction", "transaction", "commit", "abort", "empty", "strange")),
    gap=st.sampled_from((0, 0, 0, 1, 5, 2**31)),
    timestamp=st.integers(-1, 60),
    size=st.sampled_from((0, 3, 200)),
    producer_epoch=st.integers(0, 2),
    leader_epoch=st.integers(-1, 3),
)


def batch_of(step: Step, offset: int) -> bytes:
    producer_id = step.producer_id
    if step.kind in ("commit", "abort") and producer_id >= 0:
        return build_end_marker(
            step.kind == "commit",
            producer_id,
            step.producer_epoch,
            step.size,
            step.timestamp,
            base_offset=offset,
            leader_epoch=step.leader_epoch,
        )
    strange = step.kind == "strange" and producer_id >= 0
    records = [(step.timestamp, b"\0\0\0\7" if strange else b"k", b"v" * step.size, ())]
    return build_batch(
        [] if step.kind == "empty" else records,
        base_offset=offset,
        last_offset=offset + step.size % 3,
        leader_epoch=step.leader_epoch,
        codec=Codec.LZ4 if step.size == 200 and not strange else Codec.NONE,
        producer_id=producer_id,
        producer_epoch=step.producer_epoch if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0 and step.kind == "transaction",
        control=strange,
    )


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    parts = []
    offset = BASE
    for step in draw(st.lists(STEPS, max_size=40)):
        offset += step.gap
        parts.append(batch_of(step, offset))
        offset = scan(parts[-1]).batches[0].last_offset + 1
        if draw(st.integers(0, 30)) == 0:
            offset -= 1  # the next one repeats an offset
    data = b"".join(parts)
    return data if draw(st.booleans()) else draw(broken(st.just(data)))


class Plain(NamedTuple):
    end_offset: int
    size_bytes: int
    reason: str
    epochs: list[EpochStart]
    producers: list[tuple[Batch, EndMarker | None]]
    indexes: tuple[bytes, bytes]


def plain_walk(data: bytes, interval: int, producers_from: int) -> Plain:
    """The same in Python, one batch at a time, with the parts that appends and replays use."""
    files = ForgetfulFiles()
    files.make_directory("/plain")
    indexes = OffsetIndex(files, "/plain/index", BASE), TimeIndex(files, "/plain/timeindex", BASE)
    for index in indexes:
        index.open_active(100_000)
    indexer = Indexer(*indexes, interval)
    expected, position, reason = BASE, 0, ""
    epochs: list[EpochStart] = []
    notes: list[tuple[Batch, EndMarker | None]] = []
    found = scan(data)
    for batch in found.batches:
        if batch.base_offset < expected:
            reason = f"a batch at offset {batch.base_offset} follows offset {expected - 1}"
        elif batch.last_offset > BASE + RELATIVE_OFFSET_MAX:
            reason = f"offset {batch.last_offset} is too far above the segment's base"
        elif batch.producer_id >= 0 and batch.last_offset >= producers_from:
            try:
                notes.append((batch, end_marker(data, batch) if batch.is_control else None))
            except CorruptRecordError:
                reason = f"the control record at offset {batch.base_offset} cannot be read"
        if reason:
            break
        indexer.add([batch])
        if batch.leader_epoch > (epochs[-1].epoch if epochs else -1):
            epochs.append(EpochStart(batch.leader_epoch, batch.base_offset))
        expected, position = batch.last_offset + 1, batch.end_position
    indexer.finish()
    for index in indexes:
        index.close()
    return Plain(
        expected,
        position,
        reason or STOP_SENTENCES.get(found.stop, ""),
        epochs,
        notes,
        (files.read("/plain/index"), files.read("/plain/timeindex")),
    )


def kernel_walk(data: bytes, interval: int, producers_from: int) -> tuple[SegmentReport, tuple[bytes, bytes]]:
    files = ForgetfulFiles()
    files.make_directory(PATH)
    stem = f"{PATH}/{BASE:020d}"
    file = files.create(f"{stem}.log")
    file.pwrite(data, 0)
    report = recover_segment(files, PATH, BASE, interval, producers_from)
    assert files.read(f"{stem}.log") == (data if report.overflows else data[: report.size_bytes])
    return report, (files.read(f"{stem}.index"), files.read(f"{stem}.timeindex"))


def state_of(
    notes: list[tuple[Batch, EndMarker | None]], before: list[tuple[Batch, EndMarker | None]]
) -> tuple[object, ...]:
    """Everything that producers and their transactions come to, from a state that was there before the segment."""
    producers = Producers()
    aborted = []
    for batch, marker in before + notes:
        completed = producers.update(batch, marker)
        if completed is not None:
            if completed.aborted:
                aborted.append((completed, producers.last_stable_offset_after(completed)))
            producers.complete(completed)
    states = {p.producer_id: (p.state(), list(p.batches)) for p in producers.values()}
    return states, producers.open_transactions, producers.first_unstable_offset, aborted


@given(
    segments(),
    st.sampled_from((0, 100, 300)),
    st.sampled_from((0, 0, BASE + 7)),
    st.sampled_from((70, 200, 10_000)),
    st.sampled_from((1, 3, 1000)),
    st.lists(st.tuples(st.sampled_from((0, 1, 2)), st.booleans()), max_size=3),
)
def test_one_kernel_call_a_stretch_is_the_same_as_batch_by_batch(
    data: bytes,
    interval: int,
    producers_from: int,
    stretch_bytes: int,
    room: int,
    earlier: list[tuple[int, bool]],
) -> None:
    before: list[tuple[Batch, EndMarker | None]] = []
    for offset, (producer_id, transactional) in enumerate(earlier):
        made = build_batch(
            [(1, b"k", b"v", ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
        before.append((scan(made).batches[0], None))
    wanted = plain_walk(data, interval, producers_from)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "STRETCH_BYTES", stretch_bytes)
        for name in ("_INDEX_ENTRIES_MAX", "_EPOCHS_MAX", "_EVENTS_MAX"):
            patch.setattr(harvest, name, room)
        patch.setattr(harvest, "_SLOTS_FIRST", 2)
        patch.setattr(harvest, "_SLOTS_MAX", 2 if room == 1 else 4096)
        report, indexes = kernel_walk(data, interval, producers_from)
    assert (report.end_offset, report.size_bytes, report.reason) == (
        wanted.end_offset,
        wanted.size_bytes,
        wanted.reason,
    )
    assert indexes == wanted.indexes
    assert report.epochs == wanted.epochs
    assert state_of(list(report.producers), before) == state_of(wanted.producers, before)


def test_what_a_producer_sent_in_between_is_not_kept() -> None:
    data = b"".join(
        build_batch(
            [(1, b"k", b"v", ())],
            base_offset=BASE + number,
            producer_id=number % 2,
            producer_epoch=0,
            base_sequence=number // 2,
            transactional=True,
        )
        for number in range(1000)
    )
    report, _ = kernel_walk(data, 0, 0)
    kept = [batch.base_offset - BASE for batch, _ in report.producers]
    assert kept == [0, 1, *range(990, 1000)], "the first of each transaction, and the last five of each producer"


def test_each_transaction_is_known_from_its_first_batch() -> None:
    steps = [Step(1, kind, 0, 1, 3, 0, 0) for kind in (["transaction"] * 8 + ["abort"]) * 2]
    data = b"".join(batch_of(step, BASE + number) for number, step in enumerate(steps))
    report, _ = kernel_walk(data, 0, 0)
    _, _, _, aborted = state_of(list(report.producers), [])
    assert isinstance(aborted, list)
    assert [(ended.first_offset - BASE, ended.last_offset - BASE) for ended, _ in aborted] == [(0, 8), (9, 17)]


@pytest.mark.parametrize(("producers_from", "kept"), [(BASE, 2), (BASE + 2, 2), (BASE + 3, 1)])
def test_a_batch_over_the_logs_start_counts_whole(producers_from: int, kept: int) -> None:
    steps = (Step(1, "data", 0, 1, 200, 0, 0), Step(2, "data", 0, 1, 200, 0, 0))
    first, second = (batch_of(step, BASE + 3 * number) for number, step in enumerate(steps))
    assert scan(first).batches[0].last_offset == BASE + 2
    report, _ = kernel_walk(first + second, 0, producers_from)
    assert len(report.producers) == kept
