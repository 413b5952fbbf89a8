"""A broker's log generation changes when its logs may have lost something, and only then."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from tests.unit.handlers.failing_files import FailingFiles

from penstock.app.generation import FILE_NAME, take_generation
from penstock.base.files import SystemFiles
from penstock.storage.directory_state import DirectoryState


class Machine:
    """Directories, and a start after a start."""

    def __init__(self, root: Path, directories: int = 2) -> None:
        self.paths = [root / str(number) for number in range(directories)]
        for path in self.paths:
            path.mkdir()
        self._numbers = count()
        self.files = FailingFiles()
        self.states: list[DirectoryState] = []

    def start(self, *, clean: bool, boot_id: str = "boot") -> str:
        self.states = []
        for path in self.paths:
            state = DirectoryState(str(path), SystemFiles().lock(str(path / ".lock")), SystemFiles())
            state.was_clean = clean
            state.lock.release()
            self.states.append(state)
        return take_generation(self.files, self.states, boot_id, lambda: f"generation-{next(self._numbers)}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_clean_restart_keeps_it_whatever_the_machine_did(machine: Machine) -> None:
    first = machine.start(clean=False)
    assert machine.start(clean=True) == first
    assert machine.start(clean=True, boot_id="another") == first


def test_a_killed_process_loses_nothing(machine: Machine) -> None:
    assert machine.start(clean=False) == machine.start(clean=False)


def test_a_machine_that_went_down_may_have_lost_something(machine: Machine) -> None:
    first = machine.start(clean=False)
    second = machine.start(clean=False, boot_id="another")
    assert second != first
    assert machine.start(clean=False, boot_id="another") == second


def test_a_system_that_names_no_boot_is_like_a_new_one_each_time(machine: Machine) -> None:
    assert machine.start(clean=False, boot_id="") != machine.start(clean=False, boot_id="")


def test_an_empty_disk_draws_anew_even_after_a_clean_end(machine: Machine) -> None:
    first = machine.start(clean=True)
    (machine.paths[1] / FILE_NAME).unlink()
    second = machine.start(clean=True)
    assert second != first
    assert machine.start(clean=True) == second


def test_directories_that_differ_draw_anew(machine: Machine) -> None:
    """A crash between two of the writes."""
    first = machine.start(clean=True)
    (machine.paths[0] / FILE_NAME).write_text("generation-77\nboot\n2\n")
    assert machine.start(clean=True) not in (first, "generation-77")


@pytest.mark.parametrize("content", ["", "x", "\n", "a\nb\n", "a\nb\n2\nd\n"])
def test_what_cannot_be_read_is_no_generation(machine: Machine, content: str) -> None:
    first = machine.start(clean=True)
    for path in machine.paths:
        (path / FILE_NAME).write_text(content)
    assert machine.start(clean=True) != first


@pytest.mark.parametrize("clean", [False, True])
def test_a_disk_that_failed_is_not_trusted_again(machine: Machine, clean: bool) -> None:
    """Also where it cannot be told so itself."""
    first = machine.start(clean=False)
    machine.files.broken.add(str(machine.paths[0]))
    machine.states[0].health.fail(OSError("Input/output error"))
    machine.files.broken.clear()
    assert machine.start(clean=clean) != first


@pytest.mark.parametrize("missing", [0, 1])
def test_a_directory_that_is_away_draws_anew_and_once_more_when_it_is_back(machine: Machine, missing: int) -> None:
    """It took what it holds along: it failed before the start, or is in the configuration no more."""
    first = machine.start(clean=True)
    away = machine.paths.pop(missing)
    second = machine.start(clean=True)
    assert machine.start(clean=False) == second
    machine.paths.insert(missing, away)
    assert len({first, second, machine.start(clean=True)}) == 3
