"""The table of known bugs and attacks and the tests that hold them off, made from the comments in the tests.

A test names a bug of Apache Kafka as `KAFKA-673` or `KAFKA-673, 905`, an attack in a comment that begins with it: `# A13`.
`python -m tests.unit.pitfalls` writes docs/pitfalls.md; `test_pitfalls` says when it has to be written again.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "pitfalls.md"
SEARCHED = (
    "tests/unit", "tests/property", "tests/fuzz", "tests/crash", "tests/simulation", "tests/compat", "tests/cluster",
)  # fmt: skip
_IDS = re.compile(r"KAFKA-(\d+(?:, \d+)*)")
_ATTACKS = re.compile(r"# (A\d+(?:, A\d+)*)")


class Attack(NamedTuple):
    """An input that must be withstood; what holds it off beside the tests; what is not withstood because it is not there yet."""

    what: str
    held_off: str = ""
    later: str = ""


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
    "6 Replication, high watermark, epochs": (
        1211, 6361, 7395, 7164, 7415, 7128, 10706, 10432, 14704, 13141, 12996, 13207, 15510, 9196, 9491, 3978, 769, 858, 851,
        8333, 5634, 6975, 7104, 7414, 15583, 13091, 13254, 12686, 12751, 15221, 7235, 9672, 14140, 7152, 4485, 7786, 8012,
        2143, 4384, 9617, 1483, 6082, 1188, 4447, 992, 1029, 8002, 9087, 16297, 9654,
    ),
    "7 Fetch sessions, purgatory, groups, locks": (
        9137, 9338, 13111, 7697, 3994, 6042, 2253, 9198, 2960, 14334, 664, 6431, 8069, 13636, 4682, 4362, 4704, 8448, 9265,
        1580, 495,
    ),
}  # fmt: skip

ELSEWHERE: Mapping[int, str] = {
    9156: "one loop owns a log, so nobody else can open its index at the same time",
    14792: "as 9156",
    9807: "a read takes the last stable offset, the slice and the aborted list in one call on one thread",
    13254: "one loop owns partitions and whoever waits for them, and takes no lock for them",
    7697: "as 13254",
    3994: "as 13254",
    6042: "as 13254",
    2253: "as 13254",
    6431: "as 13254",
}

ATTACKS: Mapping[str, Attack] = {
    "A1": Attack("a frame whose length is over the limit, negative, 0, or 2 GiB with four bytes sent"),
    "A2": Attack("a tiny frame that claims 2^31 - 1 elements, bytes or tagged fields (CVE-2022-34917)"),
    "A3": Attack("varints that are too long, negative lengths, sums over 32 bits, null where nothing may be null"),
    "A4": Attack(
        "decompression bombs in every codec (CVE-2023-34455), a window of 2 GiB",
        "nested sets of the formats v0 and v1 are not taken at all",
    ),
    "A5": Attack(
        "senders that never finish, idle connections, readers that never read", later="a TLS handshake that stalls"
    ),
    "A6": Attack("calls before SASL is done, or in the wrong order", later="SASL is not offered yet"),
    "A7": Attack(
        "unknown keys and versions, headers of another version, odd correlation ids, a client id of 32 KB or no UTF-8"
    ),
    "A8": Attack(
        "PLAIN and SCRAM: another's name, NULs, nonces not echoed, timing (CVE-2017-12610)",
        later="SASL is not offered yet",
    ),
    "A9": Attack("authentication again as somebody else, or with an expired session", later="SASL is not offered yet"),
    "A10": Attack(
        "a client that says it is a broker (CVE-2018-1288): replica ids, and every call that only brokers make",
        "with an authoriser that denies it; access control itself comes later",
    ),
    "A11": Attack(
        "crafted Produce: flags around access control (CVE-2018-17196), another's transactional id, control batches, internal topics"
    ),
    "A12": Attack(
        "access control: deny beats allow, patterns, hosts, what is hidden",
        later="ACLs are not offered yet; every handler asks the authoriser",
    ),
    "A13": Attack(
        "topic names that are paths, too long, alike, or like the names of directories; symbolic links in log directories"
    ),
    "A14": Attack(
        "very many groups, members, producer ids, transactional ids, fetch sessions, topics, keys",
        later="quotas for the rest",
    ),
    "A15": Attack("configurations that read files, tell passwords, or hold control characters"),
    "A16": Attack(
        "old TLS, weak ciphers, wrong certificates",
        "TLS for a plain port is a length as in A1",
        later="TLS is not offered yet",
    ),
    "A17": Attack("ZooKeeper: writable nodes, secrets, names that are paths", later="ACLs on nodes come with SASL"),
    "A18": Attack("line ends and secrets in logs"),
    "A19": Attack("quotas and who goes around them", later="quotas are not offered yet"),
    "A20": Attack(
        "what is Python's: sizes for struct and int, recursion, pickle, regular expressions, tasks that leak, zlib"
    ),
}

NAMELESS: Mapping[str, tuple[str, ...]] = {
    "a write torn at every 512 B and 4 KiB boundary of a batch": (
        "storage/test_recovery.test_a_write_torn_at_any_sector_or_page_costs_that_batch_and_no_other",
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


@cache
def _tests() -> tuple[tuple[str, str], ...]:
    """Each test's name, with its file's, and its source with the comments; a file's folder too where two have its name."""
    paths = [path for folder in SEARCHED for path in sorted((ROOT / folder).rglob("test_*.py"))]
    often = Counter(path.stem for path in paths)
    return tuple(
        (f"{path.stem if often[path.stem] == 1 else f'{path.parent.name}/{path.stem}'}.{name}", source)
        for path in paths
        for name, source in _tests_in(path.read_text())
    )


def _tests_in(source: str) -> Iterator[tuple[str, str]]:
    lines, module = source.splitlines(), ast.parse(source).body
    assigned = {
        target.id
        for node in module
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in module:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            name = node.name
        elif isinstance(node, ast.ClassDef) and f"Test{node.name}" in assigned:
            name = f"Test{node.name}"  # of a state machine
        else:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        yield name, "\n".join(lines[first - 1 : node.end_lineno])


def tests_by_id() -> dict[str, list[str]]:
    """The tests that name each bug, by its number, and each attack, by its letter and number."""
    found: dict[str, list[str]] = {}
    for name, source in _tests():
        for match in (*_IDS.finditer(source), *_ATTACKS.finditer(source)):
            for one in match[1].split(", "):
                names = found.setdefault(one, [])
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
        "Bugs that Apache Kafka had and mended, inputs that a broker must withstand, and the tests here that would see them. Made by",
        "`python -m tests.unit.pitfalls` from the comments in the tests; a test fails where this file is not in step.",
    ]
    for section, numbers in SECTIONS.items():
        lines += ["", f"## {section}", "| id | test, or why there is none |", "|---|---|"]
        for number in numbers:
            said = [f"`{name}`" for name in covered.get(str(number), [])]
            if number in ELSEWHERE:
                said.append(ELSEWHERE[number])
            lines.append(f"| KAFKA-{number} | {'<br>'.join(said)} |")
    lines += ["", "## 8 Attacks and bad inputs", "| id | input | test, or what else holds it off |", "|---|---|---|"]
    for attack, (what, held_off, later) in ATTACKS.items():
        said = [f"`{name}`" for name in covered.get(attack, [])]
        said += [*([held_off] if held_off else []), *([f"later: {later}"] if later else [])]
        lines.append(f"| {attack} | {what} | {'<br>'.join(said)} |")
    lines += ["", "## Cases without an id", "| case | test |", "|---|---|"]
    lines += [f"| {case} | {'<br>'.join(f'`{name}`' for name in names)} |" for case, names in NAMELESS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(render())
