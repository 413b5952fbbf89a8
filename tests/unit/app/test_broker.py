"""A broker's start and end, where something is wrong with them."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from penstock.app.broker import Broker
from penstock.app.config import BrokerConfig
from penstock.base.files import SystemFiles
from penstock.base.ids import TopicPartition
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


class WaitingFiles(SystemFiles):
    """A disk that syncs the names of a partition's directory only when it is told to."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.may_go_on = threading.Event()

    def sync_directory(self, path: str) -> None:
        if path.endswith("/t-0"):
            self.is_asked.set()
            assert self.may_go_on.wait(30), "nobody let the disk go on: the loop is held"
        super().sync_directory(path)


def test_the_loop_turns_while_a_stop_waits_for_the_disk_and_the_marker_comes_after_it(tmp_path: Path) -> None:
    files = WaitingFiles()

    async def run() -> list[str]:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}), files=files)
        await broker.start()
        broker._directories.create(TopicPartition("t", 0), broker._config_for(TopicPartition("t", 0)))
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.to_thread(files.is_asked.wait, 30)
        assert not stopping.done()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        files.may_go_on.set()
        return await stopping

    assert asyncio.run(run()) == []
    assert (tmp_path / ".kafka_cleanshutdown").exists()
