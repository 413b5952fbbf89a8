"""Leader epoch history: assignments, answers, cuts from either end (row S11)."""

from __future__ import annotations

import pytest

from penstock.storage.checkpoints import EpochStart
from penstock.storage.leader_epochs import LeaderEpochs


def history(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries])


def test_an_epoch_is_recorded_where_it_begins_and_only_once() -> None:
    epochs = history()
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 10)
    assert epochs.assign(2, 10)
    assert epochs.entries == (EpochStart(0, 0), EpochStart(2, 10))
    assert epochs.latest == 2


def test_a_new_fact_drops_the_entries_that_contradict_it() -> None:
    epochs = history((1, 10), (3, 20), (5, 30))
    epochs.assign(4, 20)
    assert epochs.entries == (EpochStart(1, 10), EpochStart(4, 20))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before the first known epoch: it ended where that begins
        (1, (1, 20)),
        (2, (1, 20)),  # never led here: the largest epoch below it
        (3, (3, 40)),  # the newest: the log's end
        (4, (-1, -1)),  # from the future: nothing is known
    ],
)
def test_an_epoch_ends_where_the_next_known_one_begins(asked: int, answer: tuple[int, int]) -> None:
    assert history((1, 10), (3, 20)).end_offset_for(asked, 40) == answer


def test_without_history_nothing_is_answered() -> None:
    assert history().end_offset_for(0, 40) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 1), (19, 1), (20, 3), (1000, 3)])
def test_the_epoch_of_an_offset_is_the_last_that_began_at_or_below_it(offset: int, epoch: int) -> None:
    assert history((1, 10), (3, 20)).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("end", "kept"), [(5, ()), (10, ()), (11, ((1, 10),)), (20, ((1, 10),)), (21, ((1, 10), (3, 20)))]
)
def test_epochs_that_began_at_or_beyond_the_new_end_never_were(end: int, kept: tuple[tuple[int, int], ...]) -> None:
    epochs = history((1, 10), (3, 20))
    epochs.truncate_from_end(end)
    assert epochs.entries == kept
    assert epochs.dirty == (len(kept) < 2)


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (5, ((1, 10), (3, 20))),
        (10, ((1, 10), (3, 20))),
        (15, ((1, 15), (3, 20))),
        (20, ((3, 20),)),
        (35, ((3, 35),)),
    ],
)
def test_the_epoch_that_holds_the_new_start_begins_there(start: int, kept: tuple[tuple[int, int], ...]) -> None:
    epochs = history((1, 10), (3, 20))
    epochs.truncate_from_start(start)
    assert epochs.entries == kept


def test_what_the_file_lacks_is_handed_out_once() -> None:
    epochs = history((1, 10))
    assert epochs.take_dirty() is None, "what was read from the file is in it"
    epochs.assign(2, 20)
    assert epochs.take_dirty() == (EpochStart(1, 10), EpochStart(2, 20))
    assert epochs.take_dirty() is None
    epochs.clear()
    assert epochs.take_dirty() == ()


def test_epochs_that_went_and_came_back_are_in_the_file_still() -> None:
    epochs = history((1, 10), (3, 20))
    epochs.truncate_from_end(20)
    epochs.assign(3, 20)
    assert epochs.take_dirty() is None
    epochs.distrust_file()
    assert epochs.take_dirty() == ((1, 10), (3, 20)), "whatever they are"


def test_an_epoch_that_wrote_nothing_is_not_waited_for_at_a_stop_and_any_other_is() -> None:
    epochs = history((1, 10), (3, 20))
    epochs.assign(4, 30)
    assert epochs.is_written_below(30)
    assert not epochs.is_written_below(31)
    epochs.truncate_from_start(15)
    assert not epochs.is_written_below(30)
    epochs.take_dirty()
    assert epochs.is_written_below(31)
    epochs.distrust_file()
    assert not epochs.is_written_below(31)


def test_what_a_restart_wrote_is_what_the_file_says_from_then_on() -> None:
    epochs = history((1, 10))
    assert epochs.restart() == ()
    assert epochs.take_dirty() is None
    epochs.assign(1, 10)
    assert epochs.take_dirty() == ((1, 10),), "the file was emptied since it said so"
