"""Asks for judges: a test that needs one says so, and the run says at its end which were not there."""

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
    absent = [name for name in names if name in fetch_judges.missing()]
    if not absent:
        return
    message = f"missing judge: {', '.join(absent)} (`make judges` fetches it)"
    if ON_CI:
        pytest.fail(message)
    pytest.skip(message)


def kernels_are_compiled() -> bool:
    from penstock.records import kernels

    return not (kernels.__file__ or "").endswith(".py")
