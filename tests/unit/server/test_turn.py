"""Small requests of one turn are handled together, and nobody's requests change their order by that."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.test_connection import FakeTransport, ManualTurn, connected, frame, receive

from penstock.handlers.api import CloseConnectionError, Peer, Pending
from penstock.server.connection import REQUESTS_A_TURN, WATCHED_BYTES_MAX, Connection
from penstock.server.dispatch import SHORT_BYTES_MAX, Outcome, Waiting
from penstock.server.turn import GATHERED_BYTES_MAX, MISSES_MAX, UNWATCHED_ANSWERS, WATCHED_TURNS

SHORT = b"\0\0"


class Broker:
    """What begins with `SHORT` may be handled with others; `hard` is not, `late` waits, `held` too and keeps those behind it, `bad` closes, `bug` is one."""

    def __init__(self) -> None:
        self.handled: list[list[bytes]] = []
        self.pending: list[Pending[bytes]] = []
        self.turn = ManualTurn(self)
        self.settled = 0
        self.is_begun = False

    @property
    def short_keys(self) -> frozenset[bytes]:
        return frozenset([SHORT])

    def begin_short(self) -> None:
        assert not self.is_begun
        self.is_begun = True

    def settle_short(self) -> None:
        assert self.is_begun
        self.is_begun = False
        self.settled += 1

    def dispatch_short(self, requests: Sequence[tuple[bytes, Peer]], first: int) -> list[bytes | Waiting | None]:
        taken = []
        for payload, _ in requests[first:]:
            if payload.startswith(SHORT + b"bug"):
                raise RuntimeError("a mistake")
            if payload[2:6] in (b"hard", b"late", b"held", b"bad"):
                break
            taken.append(payload)
        if taken:
            self.handled.append(taken)
        return [None if b"unwritten" in payload else answer(payload) for payload in taken]

    def long(self, payload: bytes, _peer: Peer) -> Outcome:
        self.handled.append([payload])
        if payload.endswith(b"bad"):
            raise CloseConnectionError("bad")
        if payload.endswith((b"late", b"held")):
            self.pending.append(Pending(is_held=payload.endswith(b"held")))
            return Waiting(self.pending[-1], lambda said: said)
        return answer(payload)

    def client(self) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        transport.turn = self.turn
        return connected(self.long, transport, frame_bytes_max=2 * SHORT_BYTES_MAX), transport


def answer(payload: bytes) -> bytes:
    return bytes(payload).removeprefix(SHORT) + b";"


def short(*payloads: bytes) -> bytes:
    return b"".join(frame(SHORT + payload) for payload in payloads)


def test_requests_of_several_connections_are_handled_together_and_answered_to_their_own() -> None:
    broker = Broker()
    (first, to_first), (second, to_second) = broker.client(), broker.client()
    receive(first, short(b"a", b"b"))
    receive(second, short(b"c"))
    receive(first, short(b"d"))
    handled_before, was_busy = list(broker.handled), first.is_busy
    broker.turn.end()
    assert (handled_before, was_busy, first.is_busy) == ([], True, False)
    assert broker.settled == 1
    assert broker.handled == [[SHORT + one for one in (b"a", b"b", b"c", b"d")]]
    assert (to_first.written, to_second.written) == ([b"a;b;d;"], [b"c;"])
    assert not broker.turn.is_planned


def test_a_client_that_asks_alone_is_answered_at_once_until_another_asks() -> None:
    broker = Broker()
    (client, transport), (other, to_other) = broker.client(), broker.client()
    receive(client, short(b"a"))
    broker.turn.end()
    receive(client, short(b"b"))
    assert (transport.written, broker.turn.is_planned) == ([b"a;", b"b;"], False)
    receive(other, short(b"c"))
    receive(client, short(b"d"))
    assert (transport.written[2:], to_other.written) == ([], [])
    broker.turn.end()
    assert (transport.written[2:], to_other.written) == ([b"d;"], [b"c;"])


def test_the_loop_stays_awake_for_a_moment_after_the_answer_to_a_client_that_asks_alone() -> None:
    broker = Broker()
    (client, _), (other, _) = broker.client(), broker.client()
    receive(client, short(b"a"))
    broker.turn.end()
    assert not broker.turn.is_looking, "nobody knows yet that it asks alone"
    receive(client, short(b"b"))
    assert looks(broker) == WATCHED_TURNS
    receive(client, short(b"c"))
    broker.turn.look()
    receive(client, short(b"d"))
    assert looks(broker) == WATCHED_TURNS, "a request begins it anew, and there is one at a time"
    receive(client, frame(bytes(WATCHED_BYTES_MAX + 1)))
    assert not broker.turn.is_looking, "who sends much does not wait for each answer"
    receive(other, short(b"e"))
    broker.turn.end()
    assert not broker.turn.is_looking, "who shares the turns is not watched for"


def test_a_client_that_does_not_ask_so_soon_is_watched_for_only_now_and_then() -> None:
    broker = Broker()
    client, _ = broker.client()
    receive(client, short(b"first"))
    broker.turn.end()

    def ask() -> int:
        receive(client, short(b"a"))
        return looks(broker)

    watches = [ask() for _ in range(MISSES_MAX + 2 * UNWATCHED_ANSWERS)]
    in_vain = [*[0] * (UNWATCHED_ANSWERS - 1), WATCHED_TURNS]
    assert watches == [*[WATCHED_TURNS] * MISSES_MAX, *in_vain, *in_vain]
    for _ in range(UNWATCHED_ANSWERS):
        receive(client, short(b"a"))
    assert broker.turn.is_looking
    receive(client, short(b"in time"))
    assert [ask() for _ in range(MISSES_MAX + 1)] == [*[WATCHED_TURNS] * MISSES_MAX, 0], "it may miss as often again"


def looks(broker: Broker) -> int:
    """How often the loop looks for a request until it gives up."""
    count = 0
    while broker.turn.is_looking:
        broker.turn.look()
        count += 1
    return count


def test_several_requests_of_a_client_that_asks_alone_are_handled_together() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a"))
    receive(client, short(b"b", b"c"))
    receive(client, short(b"d"))
    assert broker.handled == [[SHORT + one for one in (b"a", b"b", b"c")], [SHORT + b"d"]]
    assert transport.written == [b"a;b;c;d;"]


def test_what_a_connection_sends_behind_gathered_requests_is_handled_behind_them() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a") + frame(b"other") + short(b"b"))
    assert broker.handled == [[SHORT + b"a"], [b"other"]]
    assert transport.sent == b"a;other;b;"


def test_one_that_must_go_the_long_way_does_so_before_those_behind_it() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a", b"hard", b"hard2", b"b", b"c"))
    assert transport.sent == b"a;hard;hard2;b;c;"
    assert broker.handled == [[SHORT + b"a"], [SHORT + b"hard"], [SHORT + b"hard2"], [SHORT + b"b", SHORT + b"c"]]


def test_one_that_could_not_be_written_goes_the_long_way() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a", b"unwritten", b"b"))
    assert transport.sent == b"a;unwritten;b;"
    assert broker.handled[1:] == [[SHORT + b"unwritten"]]


def test_answers_of_gathered_requests_wait_behind_one_that_is_not_there_yet() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a", b"late", b"b"))
    assert transport.sent == b"a;"
    receive(client, short(b"c"))
    broker.pending[0].resolve(b"at last;")
    assert transport.sent == b"a;at last;b;c;"


def test_what_was_gathered_behind_a_request_that_is_held_waits_and_others_do_not() -> None:
    broker = Broker()
    (client, transport), (other, to_other) = broker.client(), broker.client()
    receive(client, short(b"a", b"held", b"b", b"hard"))
    receive(other, short(b"c"))
    assert (transport.sent, to_other.sent) == (b"a;", b"c;")
    assert broker.handled == [[SHORT + b"a"], [SHORT + b"held"], [SHORT + b"c"]]
    receive(client, short(b"d"))
    (held,) = broker.pending
    held.release()
    assert [payload for payloads in broker.handled[3:] for payload in payloads] == [
        SHORT + one for one in (b"b", b"hard", b"d")
    ]
    assert transport.sent == b"a;", "its answer is not there yet"
    held.resolve(b"held;")
    assert transport.sent == b"a;held;b;hard;d;"
    assert not client.is_busy
    assert transport.reading


class Ordered(Broker):
    """Notes what is begun while something else of the connection is held."""

    def long(self, payload: bytes, peer: Peer) -> Outcome:
        assert not any(one.is_held for one in self.pending), payload
        return super().long(payload, peer)

    def dispatch_short(self, requests: Sequence[tuple[bytes, Peer]], first: int) -> list[bytes | Waiting | None]:
        said = super().dispatch_short(requests, first)
        assert not said or not any(one.is_held for one in self.pending)
        return said


STEPS = st.one_of(
    st.lists(st.sampled_from([b"short", b"hard", b"late", b"held", b"long"]), min_size=1, max_size=6),
    st.sampled_from(["turn", "release", "resolve"]),
)


@given(steps=st.lists(STEPS, max_size=20))
def test_whatever_is_held_requests_begin_and_are_answered_in_their_order(steps: list[list[bytes] | str]) -> None:
    broker = Ordered()
    client, transport = broker.client()
    sent: list[bytes] = []

    def step(name: str) -> None:
        waiting = [one for one in broker.pending if not one.is_resolved]
        if name == "turn":
            while broker.turn.is_planned:
                broker.turn.end()
        elif name == "release" and waiting:
            waiting[-1].release()
        elif waiting:
            waiting[0].resolve(b"later;")

    for one in [*steps, *["turn", "resolve"] * 120, "turn"]:
        if isinstance(one, str):
            step(one)
            continue
        data = b""
        for kind in one:
            payload = b"%s%d%s" % (b"" if kind == b"long" else SHORT + kind[:4], len(sent), kind)
            sent.append(payload)
            data += frame(payload)
        receive(client, data)
    assert [payload for payloads in broker.handled for payload in payloads] == sent
    expected = [b"later;" if one.endswith((b"late", b"held")) else answer(one) for one in sent]
    assert transport.sent == b"".join(expected)
    assert not client.is_busy


def test_nothing_behind_a_request_that_closes_its_connection_is_handled() -> None:
    broker = Broker()
    (client, transport), (other, to_other) = broker.client(), broker.client()
    receive(client, short(b"a", b"bad", b"b"))
    receive(other, short(b"c"))
    receive(client, short(b"d"))
    broker.turn.end()
    assert transport.closed
    assert transport.written == [b"a;"]
    assert (to_other.sent, to_other.closed) == (b"c;", False)
    assert broker.handled == [[SHORT + b"a"], [SHORT + b"bad"], [SHORT + b"c"]]


def test_nothing_behind_it_is_handled_where_it_is_only_reached_for_what_is_behind_it() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"bad") + frame(b"other"))
    assert transport.closed
    assert broker.handled == [[SHORT + b"bad"]]


def test_what_was_gathered_is_answered_before_its_connection_is_closed() -> None:
    broker = Broker()
    client, transport = broker.client()
    receive(client, short(b"a"))
    client.close("the broker is stopping")
    assert (transport.written, transport.closed) == ([b"a;"], True)


def test_a_client_that_left_does_not_disturb_the_others() -> None:
    broker = Broker()
    (client, transport), (other, to_other) = broker.client(), broker.client()
    receive(client, short(b"a", b"hard"))
    receive(other, short(b"b"))
    client.connection_lost(None)
    assert to_other.sent == b"b;"
    assert transport.written == []


def test_a_mistake_of_ours_closes_the_connections_that_it_leaves_without_an_answer() -> None:
    broker = Broker()
    (client, transport), (other, to_other) = broker.client(), broker.client()
    receive(client, short(b"a", b"hard"))
    receive(other, short(b"b", b"bug"))
    broker.turn.end()
    assert (transport.written, transport.closed) == ([b"a;hard;"], False)
    assert (to_other.written, to_other.closed) == ([], True)


def test_large_requests_and_those_that_came_in_pieces_are_handled_at_once() -> None:
    broker = Broker()
    client, _ = broker.client()
    large, pieces = SHORT + bytes(SHORT_BYTES_MAX - 1), SHORT + b"pieces"
    receive(client, frame(large))
    receive(client, frame(pieces)[:7])
    receive(client, frame(pieces)[7:])
    assert broker.handled == [[large], [pieces]]


def test_a_client_with_many_small_requests_lets_others_have_their_turn() -> None:
    broker = Broker()
    client, transport = broker.client()
    wanted = [b"%d" % number for number in range(2 * REQUESTS_A_TURN + 5)]
    receive(client, short(*wanted))
    was_reading = transport.reading
    broker.turn.settle()
    assert sum(map(len, broker.handled)) == REQUESTS_A_TURN
    assert transport.sent == b"".join(one + b";" for one in wanted)
    assert (was_reading, transport.reading) == (False, True)


def test_with_much_gathered_what_comes_is_handled_at_once() -> None:
    broker = Broker()
    clients = [broker.client() for _ in range(40)]
    large = b"v" * (SHORT_BYTES_MAX - 2)
    for client, _ in clients:
        receive(client, short(large))
    assert len(broker.handled) == 40 - GATHERED_BYTES_MAX // SHORT_BYTES_MAX
    broker.turn.end()
    assert [transport.written for _, transport in clients] == [[answer(large)]] * 40
