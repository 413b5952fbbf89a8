"""Whether a text is a port."""

from __future__ import annotations

import pytest

from penstock.base.config import is_port


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("1", True), ("65535", True), ("65536", False), ("0", False), ("-1", False), ("", False), ("9" * 5000, False)],
)
def test_a_port_is_a_number_that_fits(text: str, is_one: bool) -> None:
    assert is_port(text) == is_one
    assert is_port("0", lowest=0)
