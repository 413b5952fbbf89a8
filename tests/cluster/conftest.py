"""A real ZooKeeper for the tests of this folder."""

from collections.abc import Iterator

import pytest

from penstock.app.zookeeper_server import ZooKeeperServer

NO_SYNC = ("-Dzookeeper.forceSync=no",)
"""Nobody pulls the plug in these tests."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("ensemble") / "zookeeper", flags=NO_SYNC) as server:
        yield server
