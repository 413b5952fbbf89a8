"""AlterPartition: what a leader may change, and what it is told otherwise."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.controller.world import TOPIC_ID, broker, make_cluster, only, state

from penstock.base.errors import PenstockError
from penstock.controller.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
)
from penstock.controller.isr_changes import answer_of, check_sender, decide_isr
from penstock.controller.peer_requests import IsrChange, IsrMember, IsrRequest


def change(
    *isr: int, leader_epoch: int = 5, partition_epoch: int = 3, topic_id: uuid.UUID = TOPIC_ID, member_epoch: int = 1
) -> IsrChange:
    return IsrChange(
        topic_id=topic_id,
        partition=0,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr=tuple(IsrMember(broker_id=one, broker_epoch=member_epoch) for one in isr),
    )


def ask(wanted: IsrChange, sender: int = 1) -> IsrRequest:
    return IsrRequest(broker_id=sender, broker_epoch=1, changes=(wanted,))


def test_a_leader_shrinks_and_expands_its_isr_in_its_epoch() -> None:
    cluster = make_cluster(1, 2, 3, partitions={0: state(isr=(1, 2))})
    for isr in ((1,), (1, 2, 3)):
        decided = decide_isr(cluster, ask(change(*isr)), change(*isr))
        assert decided is not None
        written = only([decided])
        assert (written.leader, written.leader_epoch, written.isr) == (1, 5, isr)
        assert decided.version == 3


def test_a_member_that_joins_is_recorded_with_the_generation_it_has_now() -> None:
    cluster = make_cluster(1, 2, broker(3, generation="new"), partitions={0: state(isr=(1, 2))})
    decided = decide_isr(cluster, ask(change(1, 2, 3)), change(1, 2, 3))
    assert decided is not None
    assert only([decided]).generations == {1: "g", 2: "g", 3: "new"}


@pytest.mark.parametrize("partition_epoch", [1, 3])
def test_what_stands_already_is_done(partition_epoch: int) -> None:
    """The answer was lost: the leader asks again, with the version it knew."""
    # KAFKA-12751
    wanted = change(1, 2, 3, partition_epoch=partition_epoch)
    cluster = make_cluster(1, 2, 3)
    assert decide_isr(cluster, ask(wanted), wanted) is None
    assert answer_of(cluster, wanted).isr == (1, 2, 3)
    assert answer_of(cluster, wanted).partition_epoch == 3


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (change(1, 2, leader_epoch=4), FencedLeaderEpochError),
        (change(1, 2, leader_epoch=6), NotControllerError),
        (change(1, 2, partition_epoch=4), NotControllerError),
        (change(1, 2, partition_epoch=2), InvalidUpdateVersionError),
        (change(1, 2, topic_id=uuid.UUID(int=1)), UnknownTopicIdError),
        (change(2, 3), InvalidRequestError),
        (change(1, 2, 2), InvalidRequestError),
        (change(1, 4), InvalidRequestError),
        (change(1, 2, 3, member_epoch=0), IneligibleReplicaError),  # KAFKA-15221
        (change(1, 2, 3, member_epoch=-1), IneligibleReplicaError),
    ],
)
def test_what_may_not_be_is_refused(wanted: IsrChange, error: type[PenstockError]) -> None:
    cluster = make_cluster(1, 2, 3, 4, partitions={0: state(isr=(1,))})
    with pytest.raises(error):
        decide_isr(cluster, ask(wanted), wanted)


def test_only_the_leader_may_ask() -> None:
    with pytest.raises(InvalidRequestError):
        decide_isr(make_cluster(1, 2, 3), ask(change(1, 2), sender=2), change(1, 2))


def test_a_broker_that_is_dead_or_stops_does_not_join() -> None:
    # KAFKA-14140
    partitions = {0: state(isr=(1,))}
    with pytest.raises(IneligibleReplicaError):
        decide_isr(make_cluster(1, partitions=partitions), ask(change(1, 2)), change(1, 2))
    stopping = make_cluster(1, 2, partitions=partitions)
    stopping.shutting_down.add(2)
    with pytest.raises(IneligibleReplicaError):
        decide_isr(stopping, ask(change(1, 2)), change(1, 2))


def test_a_broker_of_an_earlier_life_is_not_heard() -> None:
    cluster = make_cluster(broker(1, epoch=2))
    with pytest.raises(StaleBrokerEpochError):
        check_sender(cluster, ask(change(1)))
    with pytest.raises(StaleBrokerEpochError):
        check_sender(make_cluster(), ask(change(1)))
