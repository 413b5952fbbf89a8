"""The table of known bugs and the tests that hold them off, made from the comments in the tests.

`python -m tests.unit.storage.pitfalls` writes docs/pitfalls.md; `test_pitfalls` says when it has to be written again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "pitfalls.md"
SEARCHED = ("tests/unit/storage", "tests/unit/coordinator", "tests/unit/handlers", "tests/crash")
_IDS = re.compile(r"KAFKA-(\d+(?:, \d+)*)")

SECTIONS: Mapping[str, tuple[int, ...]] = {
    "1 Loading, recovery, files": (
        1112, 673, 10471, 905, 10101, 12520, 6264, 4451, 6530, 6388, 654, 6492, 7401, 6324, 6194, 13603, 670, 593, 588, 748,
        695, 9156, 14792, 7283, 4734, 12981, 5413, 2024, 12889, 5752, 12964, 7278, 12955, 8564, 12875, 15391, 15572, 16588,
        13315, 3968, 1539, 9892, 16541, 10778, 7866, 698, 2477, 9835, 4576, 5584, 6292, 985, 5431, 6637, 4763, 16157,
    ),
    "2 Appends and timestamps": (3047, 6554, 765, 4776, 1755, 5353, 16342, 16310, 14991, 2236, 9080),
    "3 Producers": (
        5249, 5747, 5829, 12153, 9105, 6003, 7298, 7190, 7692, 5283, 9144, 6683, 16229, 14034,
    ),
    "4 Transactions": (
        17754, 14561, 14884, 14904, 14920, 16352, 10080, 9807, 5376, 5522, 10702, 6119, 5231, 9666, 9600, 7519, 14880, 13099,
        9065, 9307, 5600, 15784, 16371, 5610, 6052, 5202,
    ),
    "5 Compaction": (
        14055, 13727, 8351, 8522, 4529, 13194, 5490, 8335, 17076, 8764, 9826, 9133, 8724, 6266, 1641, 3330, 6854, 6834, 3587,
        7322, 6568, 12840, 7400, 12177, 1819,
    ),
}  # fmt: skip

ELSEWHERE: Mapping[int, str] = {
    9156: "one loop owns a log, so nobody else can open its index at the same time",
    14792: "as 9156",
    9807: "a read takes the last stable offset, the slice and the aborted list in one call on one thread",
}

NAMELESS: Mapping[str, tuple[str, ...]] = {
    "a write torn at every 512 B and 4 KiB boundary of a batch": (
        "test_recovery.test_a_write_torn_at_any_sector_or_page_costs_that_batch_and_no_other",
    ),
    "a `.log` of no bytes with entries in its index": (
        "test_load.test_a_log_of_no_bytes_with_entries_in_its_index_starts_over",
    ),
    "a clock that goes back across roll and retention": (
        "test_log.test_a_clock_that_goes_back_rolls_nothing_and_breaks_nothing",
        "test_retention.test_a_clock_that_jumps_back_between_roll_and_retention_deletes_nothing_and_breaks_nothing",
        "test_producer_state.test_a_clock_that_goes_back_expires_nobody",
    ),
    "`.kafka_cleanshutdown` beside a truncated segment": (
        "test_load.test_a_truncated_active_segment_is_found_out_in_spite_of_the_marker",
        "test_load.test_a_tail_behind_the_active_segments_last_batch_is_found_out_too",
        "test_load.test_an_active_index_that_does_not_fit_its_log_is_mended_before_it_is_used",
    ),
}


def _tests() -> Iterator[tuple[str, str]]:
    """Each test's name, with its file's, and its source with the comments."""
    for folder in SEARCHED:
        for path in sorted((ROOT / folder).glob("test_*.py")):
            source = path.read_text()
            lines = source.splitlines()
            for node in ast.parse(source).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    yield f"{path.stem}.{node.name}", "\n".join(lines[first - 1 : node.end_lineno])


def tests_by_id() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, source in _tests():
        for match in _IDS.finditer(source):
            for number in match[1].split(", "):
                names = found.setdefault(int(number), [])
                if name not in names:
                    names.append(name)
    return found


def test_names() -> set[str]:
    return {name for name, _ in _tests()}


test_names.__test__ = False  # type: ignore[attr-defined]


def render() -> str:
    covered = tests_by_id()
    lines = [
        "# Pitfalls",
        "",
        "Bugs that Apache Kafka had and mended, and the tests here that would see them. Made by `python -m tests.unit.storage.pitfalls`",
        "from the comments in the tests (`tests/unit`, `tests/crash`); a test fails where this file is not in step.",
    ]
    for section, numbers in SECTIONS.items():
        lines += ["", f"## {section}", "| id | test, or why there is none |", "|---|---|"]
        for number in numbers:
            said = [f"`{name}`" for name in covered.get(number, [])]
            if number in ELSEWHERE:
                said.append(ELSEWHERE[number])
            lines.append(f"| KAFKA-{number} | {'<br>'.join(said)} |")
    lines += ["", "## Cases without an id", "| case | test |", "|---|---|"]
    lines += [f"| {case} | {'<br>'.join(f'`{name}`' for name in names)} |" for case, names in NAMELESS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(render())
