"""Where `penstock` begins: a broker goes past the library of the other commands, which would double its start."""

from __future__ import annotations

import sys


def main() -> int:
    try:
        return _main()
    except KeyboardInterrupt:  # while a command is imported
        print("penstock: interrupted", file=sys.stderr)
        return 1


def _main() -> int:
    # kio's schemas register themselves with hypothesis where that is installed: a third of a broker's start and memory,
    # and a directory of its own wherever a command is run.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    if sys.argv[1:2] == ["serve"]:
        from penstock.cli.serve import main as serve

        return serve(sys.argv[2:])
    from penstock.cli.main import main as commands

    return commands()
