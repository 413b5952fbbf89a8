"""The history checker finds each kind of anomaly where one is planted, and nothing where all is well."""

import pytest
from tests.support.history import Outcome, Seen, Value, Write, find_anomalies

FINAL = 9


def _write(number: int, outcome: Outcome = Outcome.ACKNOWLEDGED, offset: int | None = None) -> Write:
    told = number if offset is None else offset
    return Write(0, Value(1, number), outcome, told if outcome is Outcome.ACKNOWLEDGED else -1)


def _seen(number: int, offset: int | None = None, reader: int = FINAL) -> Seen:
    return Seen(reader, 0, number if offset is None else offset, Value(1, number))


WRITES = [_write(0), _write(1), _write(2), _write(3, Outcome.UNKNOWN), _write(4, Outcome.REFUSED)]
SEEN = [_seen(0), _seen(1), _seen(2)]


def kinds(writes: list[Write], seen: list[Seen]) -> set[str]:
    return {anomaly.kind for anomaly in find_anomalies(writes, seen, FINAL)}


@pytest.mark.parametrize("seen", [SEEN, [*SEEN, _seen(3)], [_seen(1, reader=2), *SEEN]])
def test_a_good_history_has_no_anomaly(seen: list[Seen]) -> None:
    """A write whose outcome is not known may be there or not; other readers may see less."""
    assert kinds(WRITES, seen) == set()


@pytest.mark.parametrize(
    ("kind", "writes", "seen"),
    [
        ("lost", WRITES, [_seen(0), _seen(1)]),
        ("lost", WRITES, [_seen(0), _seen(1), _seen(2, reader=2)]),
        ("duplicated", WRITES, [*SEEN, _seen(2, offset=3)]),
        ("duplicated", WRITES, [*SEEN, _seen(3), _seen(3, offset=4)]),
        ("reordered", [_write(0, offset=1), _write(1, offset=0)], [_seen(1, offset=0), _seen(0, offset=1)]),
        ("read backwards", WRITES, [_seen(1, reader=2), _seen(0, reader=2), *SEEN]),
        ("aborted", [*WRITES, _write(5, Outcome.ABORTED)], [*SEEN, _seen(5)]),
        ("refused", WRITES, [*SEEN, _seen(4)]),
        ("elsewhere", WRITES, [_seen(0), _seen(1), _seen(2, offset=5)]),
        ("elsewhere", WRITES, [_seen(3, offset=2, reader=2), *SEEN]),
        ("elsewhere", [*WRITES, _write(6, offset=2)], [*SEEN, _seen(6, offset=7)]),
        ("invented", WRITES, [*SEEN, _seen(77)]),
    ],
)
def test_a_planted_anomaly_is_found(kind: str, writes: list[Write], seen: list[Seen]) -> None:
    assert kind in kinds(writes, seen)
