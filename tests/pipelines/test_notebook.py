"""The notebook runs, cell after cell: its proofs are in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "topics.ipynb"


def code_cells() -> list[dict[str, Any]]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_code_and_was_saved_without_outputs_that_would_grow_old() -> None:
    cells = code_cells()
    assert len(cells) > 5
    for number, cell in enumerate(cells):
        compile("".join(cell["source"]), f"cell {number}", "exec")
        assert not cell["outputs"]


@pytest.mark.long
def test_every_cell_of_the_notebook_runs(spark: SparkSession) -> None:
    cells = code_cells()
    namespace: dict[str, Any] = {"__name__": "notebook"}
    try:
        for number, cell in enumerate(cells):
            if "stops-spark" in cell["metadata"].get("tags", ()):
                continue  # the session is that of all tests
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
    finally:
        if "broker" in namespace:
            namespace["broker"].close()
    assert namespace["came"] == 11
