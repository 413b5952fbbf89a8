"""What the broker's log looks like when clients send what should not be in one."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from penstock.app.config import BrokerConfig
from penstock.cli.serve import _JsonFormatter, _TextFormatter

HOSTILE = "c\r\n2026-01-01 00:00:00 INFO penstock: all is well\x1b[2J\x85\u2028\x00"


def record(*, failed: bool) -> logging.LogRecord:
    info = None
    if failed:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("penstock.server", logging.INFO, "x.py", 1, "closing: %s", (HOSTILE,), info)


def test_what_a_client_sent_begins_no_line_and_does_not_speak_to_the_terminal() -> None:
    # A18
    formatter = _TextFormatter("%(levelname)s %(name)s: %(message)s")
    (line,) = formatter.format(record(failed=False)).splitlines()
    assert line.startswith("INFO penstock.server: closing: c\\r\\n2026")
    assert line.isprintable()
    first, *trace = formatter.format(record(failed=True)).splitlines()
    assert first == line
    assert len(trace) > 1
    assert all(one.startswith("  ") and one.isprintable() for one in trace)


@pytest.mark.parametrize("failed", [True, False])
def test_in_json_a_record_is_a_line_too(failed: bool) -> None:
    # A18
    (line,) = _JsonFormatter().format(record(failed=failed)).splitlines()
    assert json.loads(line)["message"] == f"closing: {HOSTILE}"
    assert line.isprintable()


def test_what_is_complained_of_is_named_without_its_value() -> None:
    # A15, A18
    config = BrokerConfig({"ssl.keystore.password": "hunter2", "sasl.jaas.config": 'x password="hunter2";'})
    assert len(config.complaints) == 2
    assert "hunter2" not in "".join(config.complaints)
    assert "hunter2" not in repr(config)
