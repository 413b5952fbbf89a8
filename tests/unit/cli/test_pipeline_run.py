"""What a run of a pipeline shows: a live line a flow where somebody watches, a line a change elsewhere, a summary at the end."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import pytest

from penstock.cli import pipeline_run
from penstock.cli.pipeline_run import JsonDisplay, TextDisplay, line_of
from pyspark_penstock.pipelines.flows import DONE, FAILED, RESTARTING, RUNNING, STARTING, FlowStatus

FLOW = FlowStatus(
    flow="totals", state=RUNNING, batch=7, rows=12_000, lag_records=1_500, lag_seconds=2.0, rows_per_second=4_000.0, batch_ms=180,
    longest_part="addBatch", restarts=0, error="",
)  # fmt: skip
OTHER = dataclasses.replace(FLOW, flow="table", state=STARTING, batch=-1, rows=0, batch_ms=0, longest_part="")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_says_state_lag_rates_the_batch_and_restarts() -> None:
    said = "totals: running, batch 7, 12,000 rows, 4,000 rows/s, lag 1,500 records, 2.0 s, last batch 180 ms (addBatch)"
    assert line_of(FLOW) == said
    assert "table: starting, no batch yet, 0 rows" in line_of(OTHER)
    restarted = dataclasses.replace(FLOW, state=RESTARTING, restarts=2, error="the broker is gone")
    assert line_of(restarted).endswith(", 2 restarts: the broker is gone")
    assert line_of(dataclasses.replace(FLOW, state=FAILED, error="a bad row")).endswith(", a bad row")


def test_where_somebody_watches_each_flow_has_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with TextDisplay() as display:
        display.watch([FLOW, OTHER])
        display.watch([later := dataclasses.replace(FLOW, batch=8), OTHER])
    shown = terminal.getvalue()
    assert f"{line_of(later)}\n{line_of(OTHER)}" in shown
    assert shown.endswith("\x1b[1A\x1b[2K"), "the lines are taken away: the summary stands in their place"


def test_elsewhere_a_flow_has_a_line_when_its_state_changes_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    display = TextDisplay()
    display.watch([FLOW, OTHER])
    display.watch([FLOW, dataclasses.replace(OTHER, state=RUNNING)])
    monkeypatch.setattr(pipeline_run, "LINE_SECONDS", 0.0)
    display.watch([dataclasses.replace(FLOW, batch=9)])
    out, err = capsys.readouterr()
    assert [line.split(",")[0] for line in err.splitlines()] == ["totals: running", "table: starting", "table: running", "totals: running"]  # fmt: skip
    assert out == "", "that is for the rows of the console"


def test_the_summary_tells_of_every_flow_what_was_not_met_and_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    failed = dataclasses.replace(FLOW, state=FAILED, error="a bad row", unmet={"orders.positive": 3, "orders.known": 0})
    TextDisplay().summary([failed, dataclasses.replace(OTHER, state=DONE)])
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in said[1:3]] == [["totals", FAILED], ["table", DONE]]
    assert said[3:] == ["totals: 3 rows did not meet orders.positive", "totals: a bad row"]


def test_json_has_an_object_for_each_change_of_a_flow(capsys: pytest.CaptureFixture[str]) -> None:
    display = JsonDisplay()
    for batch in (7, 7, 8):
        display.watch([dataclasses.replace(FLOW, batch=batch)])
    display.watch([dataclasses.replace(FLOW, batch=8, state=DONE)])
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["flow"], one["batch"], one["state"]) for one in found] == [
        ("totals", 7, RUNNING),
        ("totals", 8, RUNNING),
        ("totals", 8, DONE),
    ]
    assert err == ""
