"""Logs in doubt stay so until they are settled, over any number of starts."""

from typing import Any, cast

import pytest
from tests.support.forgetful_files import ForgetfulFiles

from penstock.base.errors import StorageError
from penstock.base.ids import TopicPartition
from penstock.drivers.doubts import Doubts
from penstock.storage.directory_state import DirectoryState

A, B = TopicPartition("a-b", 0), TopicPartition("a-b", 11)


def directory(files: ForgetfulFiles, path: str = "/data") -> DirectoryState:
    return DirectoryState(path, cast(Any, None), cast(Any, files))


def open_doubts(files: ForgetfulFiles, generation: str, *logs: TopicPartition, offset: int = 7) -> Doubts:
    return Doubts(cast(Any, files), generation, [(directory(files), dict.fromkeys(logs, offset))])


def settle(doubts: Doubts, *logs: TopicPartition) -> None:
    job = doubts.settle(logs)
    assert job is not None
    job()


def test_a_new_generation_puts_every_log_in_doubt_until_each_is_settled() -> None:
    files = ForgetfulFiles()
    files.make_directory("/data")
    doubts = open_doubts(files, "one", A, B)
    assert A in doubts
    assert B in doubts
    settle(doubts, A, TopicPartition("c", 1))
    assert doubts.settle([A]) is None, "there is nothing to write"
    again = open_doubts(files, "one", A, B)  # the process was killed and started
    assert A not in again
    assert B in again
    assert again.offset(B) == 7
    settle(again, B)
    assert len(open_doubts(files, "one", A, B)) == 0
    assert len(open_doubts(files, "two", A, B)) == 2


def test_a_log_that_is_new_is_in_no_doubt() -> None:
    files = ForgetfulFiles()
    files.make_directory("/data")
    assert len(open_doubts(files, "one")) == 0
    assert len(open_doubts(files, "one", A)) == 0


def test_each_directory_has_its_own_whichever_are_online() -> None:
    """What is settled in one is not in doubt again, to be cut below what was acknowledged since, when another is away for a start, or back."""
    files = ForgetfulFiles()
    homes = {path: {log: 7} for path, log in (("/data", A), ("/more", B))}
    for path in homes:
        files.make_directory(path)

    def start(*paths: str) -> Doubts:
        return Doubts(cast(Any, files), "one", [(directory(files, path), homes[path]) for path in paths])

    settle(start("/data", "/more"), B)
    assert len(start("/more")) == 0
    again = start("/data", "/more")
    assert (A in again, B in again) == (True, False)
    settle(start("/data"), A)
    assert len(start("/data", "/more")) == 0


def test_a_log_in_doubt_twice_is_what_it_was_up_to_the_lower_offset() -> None:
    """A clean stop in between has synced what is in doubt, and made it no better."""
    files = ForgetfulFiles()
    files.make_directory("/data")
    open_doubts(files, "one", A, offset=7)
    assert open_doubts(files, "two", A, offset=9).offset(A) == 7
    assert open_doubts(files, "three", A, offset=5).offset(A) == 5


def test_a_doubt_about_a_log_that_is_gone_is_none_about_the_next_of_its_name() -> None:
    files = ForgetfulFiles()
    files.make_directory("/data")
    open_doubts(files, "one", A, B)
    assert A not in open_doubts(files, "one", B)
    again = open_doubts(files, "one", A, B)
    assert (A in again, B in again) == (False, True)


def test_a_directory_that_fails_as_something_is_settled_goes_offline_and_keeps_nothing_else_from_its_role() -> None:
    files = ForgetfulFiles()
    files.make_directory("/data")
    state = directory(files)
    doubts = Doubts(cast(Any, files), "one", [(state, {A: 7, B: 7})])
    files.space_left = 0
    job = doubts.settle([A])
    assert job is not None
    with pytest.raises(StorageError):
        job()
    assert state.health.failure is not None
    assert len(doubts) == 0, "what lies there gets no role"
    assert doubts.settle([A, B]) is None
    files.space_left = None
    assert len(open_doubts(files, "one", A, B)) == 2
