"""Both kinds of randomness draw within their bounds; the seeded one draws the same again."""

from __future__ import annotations

import pytest

from penstock.base.randomness import Randomness, SeededRandomness, SystemRandomness


@pytest.mark.parametrize("made", [SystemRandomness(), SeededRandomness(1)])
@pytest.mark.parametrize("end", [1, 2, 3, 255, 256, 257])
def test_every_number_below_the_end_is_drawn_and_no_other(made: Randomness, end: int) -> None:
    assert {made.below(end) for _ in range(end * 30)} == set(range(end))


@pytest.mark.parametrize("made", [SystemRandomness(), SeededRandomness(1)])
def test_ids_are_of_version_4_and_differ(made: Randomness) -> None:
    drawn = [made.uuid() for _ in range(100)]
    assert {found.version for found in drawn} == {4}
    assert len(set(drawn)) == 100


def test_a_seed_gives_the_same_again() -> None:
    first, again, other = SeededRandomness(7), SeededRandomness(7), SeededRandomness(8)
    draws = [[made.bytes(16), made.below(1000), made.uuid()] for made in (first, again, other)]
    assert draws[0] == draws[1] != draws[2]
