"""A broker's start and end, where something is wrong with them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.app.broker import Broker
from penstock.app.config import BrokerConfig
from penstock.metadata.journal import Journal


def test_a_journal_that_cannot_be_synced_at_the_end_is_told_and_the_logs_are_closed_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[str]:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()

        def fail(_: Journal) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(Journal, "sync", fail)
        return await broker.stop()

    (complaint,) = asyncio.run(run())
    assert complaint.startswith("the metadata journal cannot be closed: ")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
