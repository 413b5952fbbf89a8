"""Who is in sync, and how far what is written counts as committed (rows R2, R3, R6)."""

import pytest
from tests.unit.replication.logs import KEY, TOPIC_ID, Replica

from penstock.replication.errors import NotEnoughReplicasError, NotLeaderOrFollowerError
from penstock.replication.partition import Partition
from penstock.replication.wait_for_acks import AwaitedAppend, acknowledged

LAG_MS = 1_000


def test_the_watermark_is_what_every_member_of_the_isr_has() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2, 3))
    leader.write(b"a", b"b", b"c")
    assert leader.log.high_watermark == 0
    leader.fetched(2, 3)
    assert leader.log.high_watermark == 0
    assert leader.fetched(3, 2).high_watermark_moved
    assert leader.log.high_watermark == 2


def test_a_partition_without_followers_goes_by_its_own_end() -> None:
    alone = Replica(1)
    alone.lead(0, (1,), (1,))
    assert alone.partition.followers is None
    alone.write(b"a", acks=-1)
    assert alone.log.high_watermark == 1


def test_a_new_epoch_of_the_same_leader_takes_no_write_back() -> None:
    """As when a follower stops cleanly: nobody's producer need send anything again."""
    leader = Replica(1)
    leader.lead(4, (1, 2, 3))
    written = AwaitedAppend(leader.partition, 4, leader.write(b"a", acks=-1), -1)
    leader.lead(5, (1, 2))
    assert not acknowledged(written), "the new epoch's followers have not spoken"
    leader.fetched(2, 1)
    assert acknowledged(written)


def test_what_a_leader_wrote_before_another_one_led_is_not_acknowledged() -> None:
    leader = Replica(1)
    leader.lead(4, (1, 2, 3))
    written = AwaitedAppend(leader.partition, 4, leader.write(b"a", acks=-1), -1)
    leader.follow(2, 5)  # KAFKA-2960
    with pytest.raises(NotLeaderOrFollowerError):
        acknowledged(written)
    leader.lead(6, (1, 2, 3))
    for follower in (2, 3):
        leader.fetched(follower, 1)
    with pytest.raises(NotLeaderOrFollowerError):
        acknowledged(written)


def test_while_an_expansion_is_under_way_the_newcomer_counts() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2))
    leader.write(b"a")
    leader.fetched(2, 1)
    proposal = leader.fetched(3, 1).proposal
    assert proposal.isr == (1, 2, 3)
    assert proposal.broker_epochs == (-1, 1, 1)
    leader.write(b"b")
    leader.fetched(2, 2)
    assert leader.log.high_watermark == 1, "the store may have 3 in the ISR already, and it has one record"
    assert leader.partition.isr == (1, 2), "a request counts members that the store has"


def test_while_a_shrink_is_under_way_the_leaver_counts() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2, 3))
    leader.write(b"a")
    leader.clock.advance(LAG_MS + 1)
    leader.fetched(2, 1)
    proposal = leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    leader.write(b"b")
    leader.fetched(2, 2)
    assert leader.log.high_watermark == 0, "the store may have 3 in the ISR still"
    assert leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS) is None, "one change at a time"
    assert leader.partition.confirm_isr(0, (1, 2), 1), "KAFKA-13091: looked at again when the ISR shrank"
    assert leader.log.high_watermark == 2


def test_an_older_confirmation_or_one_of_another_epoch_changes_nothing() -> None:
    leader = Replica(1)
    leader.lead(3, (1, 2), version=5)
    # KAFKA-12686
    assert not leader.partition.confirm_isr(3, (1,), 5)
    assert not leader.partition.confirm_isr(2, (1,), 6)
    assert leader.partition.isr == (1, 2)
    leader.partition.confirm_isr(3, (1,), 6)
    assert len(leader.partition.isr) == 1


def test_a_follower_joins_only_from_the_start_of_the_leaders_epoch() -> None:
    leader = Replica(1, min_insync_replicas="2")
    leader.lead(0, (1,))
    leader.write(b"a", b"b")
    leader.lead(1, (1,), version=1)
    assert leader.log.high_watermark == 0
    assert leader.fetched(2, 1).proposal is None, "KAFKA-7128: it has the high watermark, not the epoch"
    assert leader.fetched(2, 2).proposal is not None


def test_a_leader_that_was_killed_and_leads_on_in_its_epoch_takes_nobody_who_lacks_what_was_committed_in_it() -> None:
    """Its controller did not see it go. What it remembers of the high watermark is seconds old: here it knows nothing of it."""
    leader = Replica(1)
    leader.lead(1, (1, 2))
    leader.write(b"a", b"b")
    leader.partition = Partition(KEY, TOPIC_ID.bytes, 1, leader.log)
    leader.lead(1, (1, 2))
    assert leader.log.high_watermark == 0
    assert leader.fetched(3, 1).proposal is None, "it has the high watermark, and the epoch begins there"
    assert leader.fetched(3, 2).proposal is not None


def test_a_follower_that_reaches_the_leaders_end_joins_though_more_is_written_all_the_while() -> None:
    leader = Replica(1)
    leader.lead(0, (1,))
    for _ in range(3):
        behind = leader.write(b"a")
        leader.write(b"b")
        assert leader.fetched(2, behind).proposal is None, "not all that is committed"
    assert leader.fetched(2, leader.log.end_offset).proposal.isr == (1, 2)  # KAFKA-4485
    leader.write(b"c")
    assert leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS) is None


def test_a_member_that_is_no_replica_leaves_and_holds_nothing_up() -> None:
    """As a reassignment that another controller cut off may leave it."""
    leader = Replica(1)
    leader.lead(0, (1, 2, 4), (1, 2))
    leader.write(b"a")
    leader.fetched(2, 1)
    assert leader.log.high_watermark == 1
    proposal = leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS)
    assert proposal is not None
    assert proposal.isr == (1, 2)  # KAFKA-9672


def test_an_idle_follower_that_has_everything_stays() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2))
    leader.write(b"a")
    leader.fetched(2, 1)
    leader.clock.advance(100 * LAG_MS)
    assert leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS) is None  # KAFKA-7152


def test_a_follower_a_step_behind_a_busy_leader_stays_and_one_that_stands_still_leaves() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2))
    for number in range(10):
        end = leader.write(b"x")
        leader.clock.advance(LAG_MS // 2)
        leader.write(b"y")
        leader.fetched(2, end)
        assert leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS) is None, number
    for _ in range(3):
        leader.clock.advance(LAG_MS // 2)
        leader.fetched(2, 3)
    assert leader.partition.propose_shrink(leader.clock.monotonic_ms(), LAG_MS) is not None


def test_a_fetch_of_an_earlier_life_counts_for_nothing() -> None:
    leader = Replica(1)
    leader.lead(0, (1,))
    leader.write(b"a")
    assert leader.fetched(2, 0, broker_epoch=9).proposal is None
    assert leader.fetched(2, 1, broker_epoch=8) is None  # KAFKA-15221
    assert leader.fetched(2, 1, broker_epoch=9).proposal.broker_epochs == (-1, 9)
    assert leader.fetched(4, 1) is None, "no replica"


def test_below_min_isr_nothing_is_acknowledged_and_the_watermark_stands() -> None:
    leader = Replica(1, min_insync_replicas="2")
    leader.lead(0, (1,))
    with pytest.raises(NotEnoughReplicasError):
        leader.write(b"a", acks=-1)
    leader.write(b"b", acks=1)
    assert leader.log.high_watermark == 0  # KAFKA-15583
    leader.fetched(2, 1)
    leader.partition.confirm_isr(0, (1, 2), 1)
    assert leader.log.high_watermark == 1


def test_a_leader_that_becomes_one_anew_knows_nothing_of_its_followers() -> None:
    leader = Replica(1)
    leader.lead(0, (1, 2))
    leader.write(b"a")
    leader.fetched(2, 1)
    leader.follow(2, 1)
    assert leader.partition.followers is None
    leader.lead(2, (1, 2), version=3)
    leader.write(b"b")
    assert leader.log.high_watermark == 1
    leader.fetched(2, 2)
    assert leader.log.high_watermark == 2


def test_a_flush_that_was_due_before_another_led_holds_up_nothing_when_the_log_was_cut_below_it() -> None:
    """Nothing asks for that flush any more: the watermark, and whoever waits for it, would stand until another is due."""
    leader = Replica(1, flush_messages="5")
    leader.lead(1, (1, 2, 3))
    leader.write(*[b"x"] * 5)
    assert leader.partition.flush_offset == 5
    leader.follow(2, 2)
    leader.directories.truncate(KEY, 2)
    leader.log.flush()
    assert leader.partition.flush_offset <= leader.log.recovery_point, "a follower's flushes would never end"
    leader.lead(3, (1, 2, 3), version=1)
    written = AwaitedAppend(leader.partition, 3, leader.write(b"y", acks=-1), -1)
    for follower in (2, 3):
        leader.fetched(follower, 3)
    assert leader.log.high_watermark == 3
    assert acknowledged(written)


def test_a_new_epoch_of_the_same_leader_still_waits_for_the_disk() -> None:
    leader = Replica(1, flush_messages="2")
    leader.lead(1, (1, 2))
    written = AwaitedAppend(leader.partition, 1, leader.write(b"x", b"y", acks=-1), -1)
    leader.lead(2, (1, 2), version=1)
    leader.fetched(2, 2)
    assert leader.log.high_watermark == 0
    leader.log.flush()
    leader.partition.maybe_move_high_watermark()
    assert acknowledged(written)


def test_a_follower_whose_broker_is_not_registered_joins_only_when_it_is() -> None:
    """It may lose its power until the controller hears of it, and come back as somebody else: nobody could tell."""
    leader = Replica(1)
    leader.lead(0, (1, 2))
    leader.write(b"a")
    leader.fetched(2, 1)
    assert leader.fetched(3, 1, broker_epoch=-1).proposal is None
    assert leader.fetched(3, 1, broker_epoch=7).proposal.broker_epochs[-1] == 7
