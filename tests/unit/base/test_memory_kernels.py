"""What a process asks of the allocator, seen from outside: pages that are mapped anew."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from tests.support import judges

# A megabyte at a time, several at once, as requests come; prints the page faults of each megabyte.
_REQUESTS = """
import resource, sys
from penstock.base.memory_kernels import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def turn():
    held = [bytes(n) for n in (700_000, 1_000_000, 262_144, 1_048_576)]
for _ in range(5):
    turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    turn()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 300)
"""


def _faults_a_megabyte(word: str) -> float:
    command = [sys.executable, "-c", _REQUESTS, word]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is not asked")
def test_freed_megabytes_are_used_again_without_new_pages() -> None:
    judges.require("compiled kernels")
    assert _faults_a_megabyte("keep") < 1
    assert _faults_a_megabyte("as it is") > 10, "the C library does by itself what it is asked for here"
