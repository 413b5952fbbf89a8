"""Where kernels are interpreted, every command says a line more than these tests look for: then they do not run."""

import pytest
from tests.support import judges


@pytest.fixture(autouse=True, scope="session")
def compiled_kernels() -> None:
    judges.require("compiled kernels")
