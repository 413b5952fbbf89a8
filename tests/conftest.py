"""Profiles for properties, and the account of missing judges at the end of a run.

`PENSTOCK_TEST_PROFILE` chooses how many examples a property gets: `small` (default; under CI the same examples in every
run), or `long`, as `make test-long` sets it.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support import judges

settings.register_profile("small", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("small"), derandomize=True, database=None, print_blob=True)
settings.register_profile("long", settings.get_profile("small"), max_examples=3000)

PROFILE = os.environ.get("PENSTOCK_TEST_PROFILE") or ("ci" if judges.ON_CI else "small")
settings.load_profile(PROFILE)


@pytest.fixture(scope="session")
def full_counts() -> bool:
    """Whether a test that repeats something (kills, seeds) should do so in full."""
    return PROFILE == "long"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if judges.ON_CI and judges.missing() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    absent = judges.missing()
    if absent:
        verdict = "a failure under CI" if judges.ON_CI else "their tests were skipped"
        terminalreporter.section("missing judges", yellow=True)
        terminalreporter.line(f"{', '.join(absent)}: {verdict}; `make judges` fetches what it can")
