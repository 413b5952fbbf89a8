"""The table of pitfalls is whole, and true."""

from __future__ import annotations

from tests.unit import pitfalls


def test_every_known_bug_has_a_test_or_a_reason() -> None:
    covered = pitfalls.tests_by_id()
    wanted = {number for numbers in pitfalls.SECTIONS.values() for number in numbers}
    assert sorted(number for number in wanted if str(number) not in covered and number not in pitfalls.ELSEWHERE) == []


def test_every_attack_has_a_test_or_comes_later() -> None:
    covered = pitfalls.tests_by_id()
    assert [name for name, attack in pitfalls.ATTACKS.items() if name not in covered and not attack.later] == []
    assert {name for name in covered if name.startswith("A")} <= pitfalls.ATTACKS.keys()


def test_every_case_without_an_id_names_tests_that_exist() -> None:
    named = {name for names in pitfalls.NAMELESS.values() for name in names}
    assert named - pitfalls.test_names() == set()


def test_the_document_is_in_step_with_the_tests() -> None:
    assert pitfalls.DOCUMENT.read_text() == pitfalls.render(), "run `python -m tests.unit.pitfalls`"
