"""Checks that the documents are in step with the tree: links lead somewhere, generated documents are those of today.

`python -m tools.check_docs` names every break. Generated documents register their own check in `CHECKS`.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import compatibility

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def documents() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


def broken_links() -> Iterator[str]:
    for document in documents():
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
            for target in LINK.findall(line):
                if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists():
                    yield f"{document.relative_to(ROOT)}:{number}: nothing at {target}"


def compatibility_is_old() -> Iterator[str]:
    if (
        not compatibility.DOCUMENT.exists()
        or compatibility.DOCUMENT.read_text(encoding="utf-8") != compatibility.text()
    ):
        yield "docs/compatibility.md is out of step with the handlers: `python -m tools.compatibility` writes it anew"


CHECKS: list[Callable[[], Iterator[str]]] = [broken_links, compatibility_is_old]


def main() -> int:
    breaks = [found for check in CHECKS for found in check()]
    for found in breaks:
        print(found, file=sys.stderr)
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main())
