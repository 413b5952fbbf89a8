"""Asks for judges: a test that needs one says so, and the run says at its end which were not there."""

import importlib.util
import os

import pytest
from tools import fetch_judges

ON_CI = os.environ.get("CI") == "true"


def missing() -> list[str]:
    """What is not on this machine, by name; compiled kernels count as one."""
    names = fetch_judges.missing()
    if not kernels_are_compiled():
        names.append("compiled kernels")
    return names


def require(*names: str) -> None:
    """Ends the calling test when a judge is missing: as skipped, or under CI as failed."""
    absent = [name for name in names if name in missing()]
    if not absent:
        return
    message = f"missing judge: {', '.join(absent)} (`make judges` fetches it)"
    if ON_CI:
        pytest.fail(message)
    pytest.skip(message)


def kernels_are_compiled() -> bool:
    sources = (fetch_judges.ROOT / "src").glob("penstock/*/*kernels.py")
    modules = [".".join(source.relative_to(fetch_judges.ROOT / "src").with_suffix("").parts) for source in sources]
    specs = [importlib.util.find_spec(module) for module in modules]
    return all(spec is not None and not (spec.origin or "").endswith(".py") for spec in specs)
