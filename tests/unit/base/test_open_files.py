"""The limit of open files, on a machine that is made up."""

from __future__ import annotations

import pytest

from penstock.base.open_files import OpenFilesLimit, raise_open_files_limit, sealed_files_max


class Machine:
    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft: int, hard: int, *, most: int | None = None) -> None:
        self.soft, self.hard, self.most = soft, hard, most

    def getrlimit(self, resource: int, /) -> tuple[int, int]:
        assert resource == self.RLIMIT_NOFILE
        return self.soft, self.hard

    def setrlimit(self, resource: int, limits: tuple[int, int], /) -> None:
        assert resource == self.RLIMIT_NOFILE
        soft, hard = limits
        assert hard == self.hard, "the hard limit is left alone: it could not be raised again"
        if self.most is not None and not 0 <= soft <= self.most:
            raise ValueError("current limit exceeds maximum limit")
        self.soft = soft


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        (Machine(1024, 1_048_576), OpenFilesLimit(1024, 1_048_576)),
        (Machine(4096, 4096), OpenFilesLimit(4096, 4096)),
        (Machine(256, -1, most=10_240), OpenFilesLimit(256, 10_240)),  # macOS
        (Machine(256, 512, most=256), OpenFilesLimit(256, 256)),  # refused by a sandbox
        (Machine(-1, -1), OpenFilesLimit(-1, -1)),
        (Machine(20_480, -1, most=20_480), OpenFilesLimit(20_480, 20_480)),
    ],
)
def test_the_soft_limit_rises_as_far_as_it_may(machine: Machine, wanted: OpenFilesLimit) -> None:
    assert raise_open_files_limit(machine) == wanted
    assert machine.soft == wanted.now


@pytest.mark.parametrize(
    ("soft", "wanted"), [(1024, 256), (20_000, 5000), (1_048_576, 8192), (-1, 8192), (100, 64), (256, 64)]
)
def test_sealed_files_take_a_quarter_of_what_may_be_open_within_bounds(soft: int, wanted: int) -> None:
    assert sealed_files_max(Machine(soft, -1)) == wanted
