"""`penstock log dump`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from penstock.base.files import SystemFiles
from penstock.cli import kernels_notice, locks, places
from penstock.cli.output import Output
from penstock.storage.inspect.dump import DumpOptions, dump_file
from penstock.storage.inspect.items import ProblemItem
from penstock.storage.inspect.places import FilePlace, files_of


def run(paths: list[str], options: DumpOptions, output: Output) -> int:
    files = SystemFiles()
    found = places.find_all(files, paths)
    kernels_notice.give()
    problems = 0
    with locks.reading(places.homes(files, found), live=options.live):
        for place in found:
            problems += _dump(files, files_of(files, place), options, output)
    if problems:
        sys.stdout.flush()
        print(f"penstock: {problems} problem{' was' if problems == 1 else 's were'} found", file=sys.stderr)
    return 1 if problems else 0


def _dump(files: SystemFiles, found: Iterable[FilePlace], options: DumpOptions, output: Output) -> int:
    problems = 0
    for place in found:
        try:
            for item in dump_file(files, place, options):
                output.emit(item)
                problems += isinstance(item, ProblemItem)
        except FileNotFoundError:
            if not options.live:
                raise
    return problems
