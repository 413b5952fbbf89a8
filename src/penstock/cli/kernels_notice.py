"""One line on stderr at every start whose kernels are interpreted."""

from __future__ import annotations

import sys

SENTENCE = (
    "kernels are interpreted, which is 100 times slower and more: install a C compiler and run `make install` "
    "(or pip install) again"
)


def give() -> None:
    from penstock.records import kernels

    if not kernels.COMPILED:
        print(f"penstock: {SENTENCE}", file=sys.stderr)
