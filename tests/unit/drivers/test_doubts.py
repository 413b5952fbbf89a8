"""Logs in doubt stay so until they are settled, over any number of starts."""

from typing import Any, cast

from tests.support.forgetful_files import ForgetfulFiles

from penstock.base.ids import TopicPartition
from penstock.drivers.doubts import Doubts

A, B = TopicPartition("a-b", 0), TopicPartition("a-b", 11)


def open_doubts(files: ForgetfulFiles, generation: str, *logs: TopicPartition) -> Doubts:
    return Doubts(cast(Any, files), "/data", generation, dict.fromkeys(logs, 7))


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


def test_a_log_whose_directory_is_away_stays_in_doubt_until_it_is_back() -> None:
    files = ForgetfulFiles()
    files.make_directory("/data")
    open_doubts(files, "one", A, B)
    settle(open_doubts(files, "one", A), A)
    assert B in open_doubts(files, "one", A, B)
