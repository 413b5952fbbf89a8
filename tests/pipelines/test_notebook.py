"""The notebook runs, cell after cell: its proofs are in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "topics.ipynb"


def test_every_cell_of_the_notebook_runs(spark: SparkSession) -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
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
    assert all(not cell["outputs"] for cell in cells), "saved without outputs: they would grow old"
