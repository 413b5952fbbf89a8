"""Figures beside their yardsticks: a table in Markdown, and a picture of the ratios."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from penstock.records import kernels


class Figure(NamedTuple):
    """One figure. `ratio` is ours to the yardstick's; `wanted` says what it should be: `>= 1.0 x`, `<= 150 MB`."""

    work: str
    ours: str
    yardstick: str
    ratio: float
    wanted: str

    @property
    def reached(self) -> bool:
        sign, bound, _unit = self.wanted.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)


def chosen(benches: Collection[str], arguments: Sequence[str]) -> list[str]:
    """The benches that were asked for, all where none was. Ends the program where they cannot be run."""
    unknown = [name for name in arguments if name not in benches]
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are {', '.join(benches)}", file=sys.stderr)
        sys.exit(2)
    if not kernels.COMPILED:
        print("the kernels are interpreted: figures would mean nothing; run `make install`", file=sys.stderr)
        sys.exit(1)
    return list(arguments) or list(benches)


def run_each(benches: Mapping[str, Callable[[Path], list[Figure]]], names: Sequence[str]) -> list[Figure]:
    """One after the other, each in a folder of its own."""
    figures: list[Figure] = []
    for name in names:
        print(f"... {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            figures += benches[name](Path(folder))
    return figures


def header() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def table(figures: Sequence[Figure], yardstick: str) -> str:
    lines = [f"| work | here | {yardstick} | ratio | to reach | |", "|---|---|---|---|---|---|"]
    for figure in figures:
        mark = "reached" if figure.reached else "**missed**"
        lines.append(
            f"| {figure.work} | {figure.ours} | {figure.yardstick} | {figure.ratio:.2f} | {figure.wanted} | {mark} |"
        )
    return "\n".join(lines)


def write_section(document: Path, title: str, said: str) -> None:
    """Puts `said`, which ends with a table, at the head of a section; what stands below the section's table remains."""
    before, _heading, after = document.read_text(encoding="utf-8").partition(f"## {title}\n")
    section, next_heading, others = after.partition("\n## ")
    lines = section.splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    remarks = "\n".join(lines[rows[-1] + 1 :]).strip() if rows else section.strip()
    parts = [f"{before.rstrip()}\n\n## {title}", said, *([remarks] if remarks else [])]
    content = "\n\n".join(parts) + "\n" + next_heading + others
    document.write_text(content, encoding="utf-8")


def picture(figures: Sequence[Figure], title: str, target: Path) -> None:
    """Bars of how much better than the yardstick each figure is; 1 is as good, whichever way the figure counts."""
    row, left, width = 22, 430, 320
    gains = [figure.ratio if figure.wanted.startswith(">=") else 1 / max(figure.ratio, 1e-6) for figure in figures]
    scale = width / max(2.0, min(max(gains), 6.0))
    height = row * len(figures) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (figure, gain) in enumerate(zip(figures, gains, strict=True)):
        y = 36 + number * row
        colour = "#2a7f62" if figure.reached else "#b5533c"
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(figure.work)}</text>',
            f'<rect x="{left}" y="{y + 3}" width="{min(gain * scale, width):.0f}" height="{row - 8}" fill="{colour}"/>',
            f'<text x="{left + min(gain * scale, width) + 6:.0f}" y="{y + 14}">{gain:.2f}</text>',
        ]
    parts += [
        f'<line x1="{left + scale:.0f}" x2="{left + scale:.0f}" y1="34" y2="{height - 22}" stroke="black" '
        'stroke-dasharray="4 3"/>',
        f'<text x="{left + scale:.0f}" y="{height - 8}" text-anchor="middle">as good as the yardstick</text>',
        "</svg>",
    ]
    target.write_text("\n".join(parts) + "\n", encoding="utf-8")
