"""What may not stand in the source: readers of state that run what they read."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "os.system"}
ALLOWED = {"src/pyspark_penstock/pipelines/parse.py: exec"}
"""A pipeline in Python is its owner's own program."""


def _found(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            found |= {ast.unparse(node.func)} & FORBIDDEN_CALLS
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            found.add("shell=")
    return found


def test_nothing_that_is_read_is_run() -> None:
    # A20
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert len(sources) > 300
    found = {f"{path.relative_to(ROOT)}: {one}" for path in sources for one in _found(path)}
    assert found == ALLOWED
