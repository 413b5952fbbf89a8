"""What brokers are told of the controller's view."""

from tests.unit.controller.world import KEY, make_cluster, state

from penstock.controller.peer_requests import LEADER_DURING_DELETION, PeerRequests, RequestType
from penstock.controller.requests import tell_changes, tell_everything, tell_news


def test_everything_names_all_that_a_broker_should_hold_and_says_so_to_one_that_should_hold_nothing() -> None:
    cluster = make_cluster(1, 2, 3, 4)
    told = tell_everything(cluster, [1, 4]).leader_and_isr
    assert {one.type for one in told.values()} == {RequestType.FULL}
    assert {broker: [one.topic_partition for one in request.partitions] for broker, request in told.items()} == {
        1: [KEY],
        4: [],
    }
    changes = tell_changes(cluster, [KEY]).leader_and_isr
    assert {one.type for one in changes.values()} == {RequestType.INCREMENTAL}
    assert sorted(changes) == [1, 2, 3]


def test_a_topic_that_is_going_is_named_without_a_leader_and_clients_hear_nothing_of_it() -> None:
    cluster = make_cluster(1, 2, 3)
    cluster.image.deleting = {"t", "of which nothing is left"}
    told = tell_everything(cluster, [1])
    assert [one.leader for one in told.leader_and_isr[1].partitions] == [LEADER_DURING_DELETION]
    assert told.update_metadata[1].partitions == ()


def test_whatever_becomes_of_a_topic_that_is_going_nobody_is_given_a_role_in_it() -> None:
    """A log directory of one replica fails while the others' logs are gone already: told of that, they made them anew."""
    cluster = make_cluster(1, 2, 3)
    cluster.image.deleting = {"t"}
    assert tell_changes(cluster, [KEY]) == tell_news(cluster, [KEY]) == PeerRequests()


def test_leaders_are_told_whether_somebody_who_left_may_still_be_elected() -> None:
    for eligible in ((), (2,)):
        cluster = make_cluster(1, 2, 3, partitions={0: state(isr=(1,), eligible=eligible)})
        told = tell_changes(cluster, [KEY])
        for request in (told.leader_and_isr[1], told.update_metadata[1]):
            assert [one.has_eligible for one in request.partitions] == [bool(eligible)]
