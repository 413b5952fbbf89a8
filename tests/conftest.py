"""Profiles for properties, the account of missing judges at the end of a run, and directories that Kafka wrote.

`PENSTOCK_TEST_PROFILE` chooses how many examples a property gets: `small` (default; under CI the same examples in every
run), or `long`, as `make test-long` sets it.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import judges
from tests.support.kafka_directories import KafkaDirectory, make_directory, make_killed_directory
from tests.support.kafka_jvm import VERSIONS

settings.register_profile("small", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("small"), derandomize=True, database=None, print_blob=True)
settings.register_profile("long", settings.get_profile("small"), max_examples=3000)

PROFILE = os.environ.get("PENSTOCK_TEST_PROFILE") or ("ci" if judges.ON_CI else "small")
settings.load_profile(PROFILE)

_DEAR = {"kafka_directory", "killed_kafka_directory"}
"""Fixtures that take a minute, some of them for Spark's tests too."""

LONG_TIMEOUT_SECONDS = 3600
"""A test with full counts takes longer than `timeout` in pyproject.toml allows; a hang still ends."""


def pytest_configure() -> None:
    """What a shell lets a job in the background ignore, Ctrl-C and with nohup a hangup, its children would ignore too:
    with a handler in place of that the run stays deaf, and they are not."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, a module's stay together, and so do modules that share what is dear to make."""
    for item in items:
        if PROFILE == "long" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_SECONDS))
        path = item.path.relative_to(Path(__file__).parent)
        is_dear = path.parts[0] == "pipelines" or not _DEAR.isdisjoint(getattr(item, "fixturenames", ()))
        item.add_marker(pytest.mark.xdist_group("dear" if is_dear else path.as_posix()))


@pytest.fixture(scope="session")
def full_counts() -> bool:
    """Whether a test that repeats something (kills, seeds) should do so in full."""
    return PROFILE == "long"


@pytest.fixture(scope="session")
def made_directories() -> dict[str, KafkaDirectory]:
    """What the two fixtures below made: pytest lets a parameter's value go whenever another one is wanted."""
    return {}


@pytest.fixture(scope="session", params=VERSIONS)
def kafka_directory(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    made_directories: dict[str, KafkaDirectory],
) -> KafkaDirectory:
    """Every kind of topic, written by Apache Kafka and closed cleanly; made once a run. Copy before changing it."""
    judges.require(f"kafka-{request.param}")
    name = f"kafka-{request.param}"
    if name not in made_directories:
        made_directories[name] = make_directory(request.param, tmp_path_factory.mktemp(name))
    return made_directories[name]


@pytest.fixture(scope="session", params=VERSIONS)
def killed_kafka_directory(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    made_directories: dict[str, KafkaDirectory],
) -> KafkaDirectory:
    """What Apache Kafka leaves when it is killed with -9 in full load; made once a run. Copy before changing it."""
    judges.require(f"kafka-{request.param}")
    name = f"killed-kafka-{request.param}"
    if name not in made_directories:
        made_directories[name] = make_killed_directory(request.param, tmp_path_factory.mktemp(name))
    return made_directories[name]


def pytest_sessionstart(session: pytest.Session) -> None:
    """A compiled module hides its source: a stale one would be tested in the place of the change."""
    source = Path(__file__).parent.parent / "src"
    sources = {path: path.with_name(path.name.split(".")[0] + ".py") for path in source.rglob("*.so")}
    stale = [
        compiled.name
        for compiled, written in sources.items()
        if not written.exists() or compiled.stat().st_mtime < written.stat().st_mtime
    ]
    if stale:
        pytest.exit(f"compiled before its source was changed, run `make install`: {', '.join(sorted(stale))}", 4)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if judges.ON_CI and judges.missing() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    absent = judges.missing()
    if absent:
        verdict = "a failure under CI" if judges.ON_CI else "their tests were skipped"
        terminalreporter.section("missing judges", yellow=True)
        terminalreporter.line(f"{', '.join(absent)}: {verdict}; `make judges` fetches what it can")
