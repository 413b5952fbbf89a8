"""`penstock log repair`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.base.clock import SystemClock
from penstock.base.files import SystemFiles
from penstock.cli import kernels_notice, locks, places
from penstock.cli.output import Output
from penstock.cli.progress import progress_bar
from penstock.cli.verify import problem_item
from penstock.storage.inspect.mend import Mender
from penstock.storage.inspect.problems import Cure, Problem
from penstock.storage.inspect.verify import log_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedItem:
    kind: ClassVar[str] = "mended"
    file: str
    action: str


def run(paths: list[str], output: Output, *, force: bool) -> int:
    files = SystemFiles()
    found = places.find_directories(files, paths, "repair")
    kernels_notice.give()
    mended = 0

    def say(path: str, action: str) -> None:
        nonlocal mended
        mended += 1
        output.emit(MendedItem(file=path, action=action))

    left: list[Problem] = []
    with locks.writing(files, places.homes(files, found)):
        total = sum(log_bytes(files, place) for place in found)
        with progress_bar("checking", total) as progress:
            for place in found:
                mender = Mender(files, SystemClock(), places.home(files, place), say, force)
                left += mender.mend(place, progress)
    for problem in left:
        output.emit(problem_item(problem))
    output.say(f"{mended or 'nothing'} mended, {len(left) or 'no'} problem{'' if len(left) == 1 else 's'} left")
    if any(problem.cure is Cure.CUT for problem in left):
        output.say("a bad batch is data: --force cuts the log there, and keeps what it cuts as .cut")
    return 1 if left else 0
