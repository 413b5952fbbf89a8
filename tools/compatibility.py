"""Writes `docs/compatibility.md` from the registry of handlers, their docstrings, and the table of known differences.

`python -m tools.compatibility` writes it; `make check` says when it is out of step.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "compatibility.md"

_HEAD = """# Compatibility

Written by `python -m tools.compatibility` from the handlers and from the table of the differential test; not by hand.

Penstock speaks Kafka's protocol to any client. What stands in the table is what ApiVersions offers, and nothing else is;
flexible versions (KIP-482) are those from the number given on. Produce is offered from version 0, because clients test for
it, and answered from 3: record formats 0 and 1 are not kept here.

| key | API | versions | flexible from | differs from Kafka |
|---|---|---|---|---|
"""

_DIFFERENCES = """
## Answers that differ

The same requests go to Apache Kafka 3.9 and 4.3 and to Penstock, and their answers are compared field by field
(`tests/compat/test_differential.py`). What differs on purpose:

| Kafka | request | field | why |
|---|---|---|---|
"""


def _module_of(handle: object) -> ModuleType:
    module = inspect.getmodule(handle)
    assert module is not None
    return module


def _difference(module: ModuleType) -> str:
    """The text after `Differs from Kafka:` in a handler's head."""
    found = re.search(r"Differs from Kafka: (.+?)\s*\Z", module.__doc__ or "", re.DOTALL)
    if found is None:
        raise SystemExit(f"{module.__name__} does not say how it differs from Kafka")
    text = re.sub(r"\s+", " ", found[1]).rstrip(".")
    return "" if text == "nothing known" else text


def _rows() -> Iterator[str]:
    from penstock.handlers.registry import make_registry

    for key, api in sorted(make_registry().items()):
        low = api.low if api.advertised_low is None else api.advertised_low
        versions = f"{low}-{api.high}" if low != api.high else str(api.high)
        flexible = str(api.flexible_from) if api.flexible_from <= api.high else "never"
        yield f"| {key} | {api.name} | {versions} | {flexible} | {_difference(_module_of(api.handle))} |"


def _known() -> Iterator[str]:
    from tests.compat.known_differences import KNOWN

    for known in KNOWN:
        case, path = (part.replace("|", "\\|") for part in (known.case, known.path))
        yield f"| {known.kafka or 'both'} | `{case}` | `{path}` | {known.reason} |"


def text() -> str:
    return _HEAD + "\n".join(_rows()) + "\n" + _DIFFERENCES + "\n".join(_known()) + "\n"


def main() -> int:
    DOCUMENT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
