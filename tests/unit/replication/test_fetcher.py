"""How a follower follows: the three divergences, out of range, errors, answers that come too late (rows R1, R4)."""

from typing import Any

import pytest
from tests.unit.replication.logs import KEY, Replica

from penstock.base.errors import CorruptRecordError, OffsetOutOfRangeError, PenstockError
from penstock.records.build import build_batch
from penstock.replication.errors import NotLeaderOrFollowerError
from penstock.replication.fetcher import Asked, Fetcher, Got, LeaderOffsets
from penstock.replication.partition import Diverging

BACKOFF_MS = 1_000


def fetcher_of(follower: Replica, leader: int = 1) -> Fetcher:
    fetcher = Fetcher(leader, follower.directories, BACKOFF_MS)
    fetcher.add(follower.partition)
    return fetcher


def catch_up(fetcher: Fetcher, leader: Replica, follower: Replica) -> int:
    """Asks until there is nothing more; how often the log was cut."""
    cuts, now_ms = 0, 0
    for _ in range(50):
        now_ms += 10 * BACKOFF_MS
        asked = fetcher.ask(now_ms)
        got = leader.answer(asked[0])
        cuts += got.diverging is not None
        taken = fetcher.take(asked, [got], now_ms)
        for cut in taken.cuts:
            cut.job()
            assert fetcher.go_on(cut, None, now_ms) is True
        for outside in taken.outside:
            fetcher.take_offsets(outside, LeaderOffsets(leader.log.log_start_offset, leader.log.end_offset), now_ms)
        if got.error is None and got.diverging is None and not got.records:
            return cuts
    raise AssertionError("it never catches up")


def test_a_follower_gets_the_same_bytes_and_the_watermark() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a", b"b", b"c")
    fetcher = fetcher_of(follower)
    assert catch_up(fetcher, leader, follower) == 0
    assert follower.content() == leader.content()
    leader.fetched(2, 3)
    catch_up(fetcher, leader, follower)
    assert follower.log.high_watermark == 3


def test_more_than_a_segment_takes_is_taken_batch_by_batch() -> None:
    leader, follower = Replica(1), Replica(2, segment_bytes="100")
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(*[b"x" * 60] * 5)
    catch_up(fetcher_of(follower), leader, follower)
    assert follower.log.end_offset == 5
    assert len(follower.log.log.segments) == 5


def test_kip_101_scenario_1_a_record_that_was_committed_survives_a_quick_change_of_leaders() -> None:
    """The follower has the record and does not know yet that it is committed; it must not cut it when it starts again."""
    # KAFKA-1211
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2), (1, 2))
    follower.follow(1, 0)
    leader.write(b"a", b"b")
    catch_up(fetcher_of(follower), leader, follower)
    assert follower.log.high_watermark < 2
    again = fetcher_of(follower)
    assert follower.log.end_offset == 2
    assert catch_up(again, leader, follower) == 0
    assert follower.log.end_offset == 2


def test_kip_101_scenario_2_logs_that_parted_are_the_same_again() -> None:
    """Both lost power; the one with fewer records led meanwhile, and wrote at the same offset."""
    # KAFKA-1211
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a")
    catch_up(fetcher_of(two), one, two)
    one.write(b"lost")
    two.lead(1, (2,))
    two.write(b"other")
    one.follow(2, 1)
    assert one.log.end_offset == two.log.end_offset == 2
    assert catch_up(fetcher_of(one, 2), two, one) >= 1
    assert one.content() == two.content()


def test_kip_279_a_follower_cuts_once_for_each_epoch_that_the_two_do_not_share() -> None:
    """Fast fail-overs: each led in an epoch that the other never saw."""
    # KAFKA-6361
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a", b"b")
    catch_up(fetcher_of(two), one, two)
    two.lead(1, (2,))
    two.write(b"c2", b"d2", b"e2")
    one.lead(2, (1,))
    one.write(b"c1", b"d1", b"e1", b"f1")
    two.lead(3, (2,))
    two.write(b"f2", b"g2")
    one.follow(2, 3)
    assert catch_up(fetcher_of(one, 2), two, one) >= 1
    assert one.content() == two.content()


def test_a_follower_that_missed_an_epoch_of_another_leader_cuts_what_that_one_took_back() -> None:
    """It hears only of the third epoch, with the same leader as in the first: that one was cut by somebody else in between."""
    one, two, three = Replica(1), Replica(2), Replica(3)
    one.lead(0, (1, 2, 3))
    for follower in (two, three):
        follower.follow(1, 0)
    one.write(b"a")
    catch_up(fetcher_of(three), one, three)
    one.write(b"taken back")
    missed = fetcher_of(two)
    catch_up(missed, one, two)
    three.lead(1, (3,))
    three.write(b"b", b"c")
    one.follow(3, 1)
    catch_up(fetcher_of(one, 3), three, one)
    one.lead(2, (1,))
    one.write(b"d")
    two.follow(1, 2)
    assert catch_up(missed, one, two) >= 1  # KAFKA-7164
    assert two.content() == one.content()


def test_a_new_leader_knows_where_its_epoch_begins_before_it_wrote_anything() -> None:
    """A follower is not told that nothing is known of the epoch, and cuts nothing."""
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a", b"b")
    catch_up(fetcher_of(two), one, two)
    assert two.log.high_watermark == 0
    one.lead(1, (1, 2), version=1)
    assert one.log.leader_epochs.end_offset_for(1, one.log.end_offset) == (1, 2)  # KAFKA-7415
    two.follow(1, 1)
    assert catch_up(fetcher_of(two), one, two) == 0
    assert two.log.end_offset == 2


def test_an_epoch_in_which_nothing_was_written_does_not_hold_a_follower_up() -> None:
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a")
    catch_up(fetcher_of(two), one, two)
    one.lead(1, (1,))  # KAFKA-10706: led, wrote nothing
    two.lead(2, (2,))
    two.write(b"b")
    one.follow(2, 2)
    catch_up(fetcher_of(one, 2), two, one)
    assert one.content() == two.content()
    assert [entry.epoch for entry in one.log.leader_epochs.entries] == [0, 2]


def test_with_a_diverging_epoch_nothing_else_of_the_answer_counts() -> None:
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a")
    catch_up(fetcher_of(two), one, two)
    one.write(b"lost")
    two.lead(1, (2,))
    two.write(b"b", b"c")
    two.log.set_high_watermark(3)
    one.follow(2, 1)
    fetcher = fetcher_of(one, 2)
    asked = fetcher.ask(0)
    got = two.answer(asked[0])
    assert got.diverging is not None
    fetcher.take(asked, [got._replace(high_watermark=2)], 0)
    assert (one.log.end_offset, one.log.high_watermark) == (1, 0)  # KAFKA-14704: cut first, no watermark from it


def test_a_partition_that_is_not_followed_any_more_is_not_cut() -> None:
    """Its role changed while an answer was on its way that tells it to cut."""
    leader, follower = Replica(1), Replica(2)
    leader.lead(3, (1, 2))
    follower.lead(0, (2,))
    follower.write(b"a", b"b")
    follower.follow(1, 3)
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    cut = leader.answer(asked[0])._replace(error=None, diverging=Diverging(0, 0))
    outside = fetcher.take(asked, [_refused(OffsetOutOfRangeError(2, 0, 0))], 0).outside
    fetcher.remove(KEY)
    assert fetcher.take(asked, [cut], 0).moved == []  # KAFKA-13207
    assert not fetcher.take_offsets(outside[0], LeaderOffsets(0, 0), 0)  # KAFKA-8012
    assert follower.log.end_offset == 2


def test_an_answer_without_records_changes_nothing_of_what_is_asked_next() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a")
    fetcher = fetcher_of(follower)
    catch_up(fetcher, leader, follower)
    leader.lead(1, (1, 2), version=1)
    follower.follow(1, 1)
    before = fetcher.ask(10**9)
    empty = leader.answer(before[0])
    assert (empty.error, empty.diverging, empty.records) == (None, None, b"")
    fetcher.take(before, [empty], 0)
    assert fetcher.ask(10**9) == before
    assert before[0].last_epoch == 0, "of the last record, not of the leader"  # KAFKA-15510


def test_an_answer_to_what_is_not_asked_any_more_is_dropped() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a")
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    late = leader.answer(asked[0])
    follower.follow(3, 1)
    fetcher.take(asked, [late], 0)
    assert follower.log.end_offset == 0, "another epoch by now"  # KAFKA-7786
    follower.follow(1, 2)
    fetcher.take(fetcher.ask(0), [late], 0)
    fetcher.take(asked, [late._replace(records=b"", high_watermark=1)], 0)
    assert (follower.log.end_offset, follower.log.high_watermark) == (1, 0), "the second answered an older question"
    fetcher.remove(KEY)
    assert fetcher.take(asked, [late], 0).moved == []


@pytest.mark.parametrize(
    ("leader_offsets", "end_offset"), [(LeaderOffsets(0, 2), 2), (LeaderOffsets(10, 20), 10), (LeaderOffsets(0, 9), 3)]
)
def test_out_of_range(leader_offsets: LeaderOffsets, end_offset: int) -> None:
    """The leader's end below: cut there. Its start above: begin there. Else: only ask again."""
    follower = Replica(2)
    follower.lead(0, (2,))
    follower.write(b"a", b"b", b"c")
    follower.follow(1, 1)
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    taken = fetcher.take(asked, [_refused(OffsetOutOfRangeError(3, 0, 2))], 0)
    (outside,) = taken.outside
    assert fetcher.ask(10**9) == [], "it waits for the leader's offsets"
    fetcher.take_offsets(outside, leader_offsets, 0)
    assert follower.log.end_offset == end_offset  # KAFKA-7414: also where that is below its own watermark
    assert follower.log.high_watermark >= follower.log.log_start_offset  # KAFKA-9491
    assert [one.offset for one in fetcher.ask(10**9)] == [end_offset]


def test_a_partition_that_fails_waits_longer_and_longer_and_goes_on() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    fetcher = fetcher_of(follower)
    waits, now_ms = [], 0
    for _ in range(8):
        asked = fetcher.ask(now_ms)
        fetcher.take(asked, [_refused(NotLeaderOrFollowerError("not yet"))], now_ms)
        assert fetcher.ask(now_ms) == []
        ready_ms = fetcher.ready_ms()
        assert ready_ms is not None
        waits.append(ready_ms - now_ms)
        now_ms = ready_ms
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    leader.write(b"a")
    catch_up(fetcher, leader, follower)
    assert follower.content() == leader.content()


def test_corrupt_bytes_are_not_appended() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a")
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    got = leader.answer(asked[0])
    broken = bytearray(got.records)
    broken[-1] ^= 1
    fetcher.take(asked, [got._replace(records=broken)], 0)  # KAFKA-4384
    assert follower.log.end_offset == 0
    catch_up(fetcher, leader, follower)
    assert follower.content() == leader.content()


def test_a_log_from_before_there_were_epochs_is_cut_to_its_watermark() -> None:
    follower = Replica(2)
    follower.lead(0, (2,))
    follower.write(b"a", b"b")
    follower.log.leader_epochs.clear()
    follower.follow(1, 1)
    fetcher_of(follower)
    assert follower.log.end_offset == follower.log.high_watermark


def test_a_follower_takes_over_where_the_leaders_log_begins() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a", b"b")
    fetcher = fetcher_of(follower)
    catch_up(fetcher, leader, follower)
    leader.fetched(2, 2)
    leader.log.delete_records(1)
    catch_up(fetcher, leader, follower)
    assert follower.log.log_start_offset == 1


def test_a_log_that_begins_within_a_batch_is_followed_from_there() -> None:
    """The leader's answer begins below what was asked for, with the batch that holds it."""
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1,))
    leader.partition.append(bytearray(build_batch([(0, None, b"%d" % number, ()) for number in range(3)])), 1)
    leader.write(b"after")
    leader.log.delete_records(1)
    follower.follow(1, 0)
    catch_up(fetcher_of(follower), leader, follower)  # KAFKA-6975
    assert (follower.log.log_start_offset, follower.log.end_offset) == (1, 4)
    assert follower.content() == leader.content()


def test_a_leader_whose_log_begins_beyond_its_own_watermark_is_followed_all_the_same() -> None:
    """As where the two were told at different moments."""
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1,))
    follower.follow(1, 0)
    leader.write(b"a", b"b", b"c")
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    got = leader.answer(asked[0])._replace(high_watermark=1, log_start_offset=5)
    assert fetcher.take(asked, [got], 0).moved == [KEY]  # KAFKA-7104
    assert (follower.log.log_start_offset, follower.log.high_watermark, follower.log.end_offset) == (1, 1, 3)
    assert [one.offset for one in fetcher.ask(0)] == [3], "and it is not held up"


def test_a_watermark_that_the_leader_does_not_know_is_none() -> None:
    leader, follower = Replica(1), Replica(2)
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"a")
    fetcher = fetcher_of(follower)
    asked = fetcher.ask(0)
    fetcher.take(asked, [leader.answer(asked[0])._replace(high_watermark=-1, log_start_offset=-1)], 0)
    assert (follower.log.high_watermark, follower.log.end_offset) == (0, 1)  # KAFKA-3978


def test_a_batch_larger_than_todays_largest_message_is_followed() -> None:
    leader, follower = Replica(1), Replica(2, max_message_bytes="100")
    leader.lead(0, (1, 2))
    follower.follow(1, 0)
    leader.write(b"x" * 5_000)
    catch_up(fetcher_of(follower), leader, follower)
    assert follower.content() == leader.content()  # KAFKA-9617


def test_a_leader_refuses_an_offset_before_its_start_even_where_epochs_differ() -> None:
    leader = Replica(1)
    leader.lead(0, (1,), (1,))
    leader.write(b"a", b"b")
    leader.log.delete_records(2)
    asked = Asked(KEY, leader.partition.topic_id, 0, 1, 0, 0)
    assert isinstance(leader.answer(asked).error, OffsetOutOfRangeError)  # KAFKA-12996


def _refused(error: PenstockError) -> Got:
    return Got(KEY, error, -1, -1, None, b"")


def test_a_batch_that_is_no_batch_is_an_error_of_the_partition_only() -> None:
    follower = Replica(2)
    follower.follow(1, 0)
    fetcher = fetcher_of(follower)
    taken = fetcher.take(fetcher.ask(0), [_refused(CorruptRecordError("bad"))], 0)
    assert taken == ([], [], [], [])


def test_a_mistake_of_ours_stops_one_partition_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    follower = Replica(2)
    follower.follow(1, 0)
    fetcher = fetcher_of(follower)
    strange: Any = 7
    fetcher.take(fetcher.ask(0), [Got(KEY, None, 0, 0, None, strange)], 0)
    assert "is not followed any more" in caplog.text
    assert fetcher.ask(10**9) == []
    fetcher.add(follower.partition)
    assert len(fetcher.ask(10**9)) == 1


# Cuts that wait for the disk.
def parted() -> tuple[Replica, Replica, Fetcher]:
    """A leader, and a follower whose log goes on where the leader's parted, and is flushed beyond that."""
    one, two = Replica(1), Replica(2)
    one.lead(0, (1, 2))
    two.follow(1, 0)
    one.write(b"a")
    catch_up(fetcher_of(two), one, two)
    one.write(b"lost")
    one.log.flush()
    two.lead(1, (2,))
    two.write(b"b", b"c")
    one.follow(2, 1)
    return two, one, fetcher_of(one, 2)


def test_a_log_is_cut_when_the_lower_recovery_point_is_on_disk_and_asks_nothing_before() -> None:
    leader, follower, fetcher = parted()
    asked = fetcher.ask(0)
    taken = fetcher.take(asked, [leader.answer(asked[0])], 0)
    (cut,) = taken.cuts
    assert taken.moved == []
    assert follower.log.end_offset == 2
    assert fetcher.ask(10**9) == []
    assert fetcher.ready_ms() is None
    late = leader.answer(asked[0])._replace(diverging=None, high_watermark=2)
    assert fetcher.take(asked, [late], 0).moved == [], "nothing of the leader counts until then"
    assert follower.log.high_watermark == 0
    again = fetcher.go_on(cut, None, 0)
    assert not isinstance(again, bool), "whoever says that the job is done must have done it"
    again.job()
    assert fetcher.go_on(again, None, 0) is True
    assert follower.log.end_offset == 1
    catch_up(fetcher, leader, follower)
    assert follower.content() == leader.content()


def test_a_cut_that_the_disk_refuses_is_tried_again_with_the_next_answer() -> None:
    leader, follower, fetcher = parted()
    asked = fetcher.ask(0)
    (cut,) = fetcher.take(asked, [leader.answer(asked[0])], 0).cuts
    assert fetcher.go_on(cut, OSError("no room"), 0) is False
    assert fetcher.ask(0) == []
    assert follower.log.end_offset == 2
    ready_ms = fetcher.ready_ms()
    assert ready_ms is not None
    asked = fetcher.ask(ready_ms)
    (cut,) = fetcher.take(asked, [leader.answer(asked[0])], ready_ms).cuts
    cut.job()
    assert fetcher.go_on(cut, None, ready_ms) is True


def test_a_cut_that_was_decided_in_another_role_is_not_made() -> None:
    leader, follower, fetcher = parted()
    asked = fetcher.ask(0)
    (cut,) = fetcher.take(asked, [leader.answer(asked[0])], 0).cuts
    cut.job()
    fetcher.remove(KEY)
    assert fetcher.go_on(cut, None, 0) is False
    fetcher.add(follower.partition)
    assert fetcher.go_on(cut, None, 0) is False
    assert follower.log.end_offset == 2
