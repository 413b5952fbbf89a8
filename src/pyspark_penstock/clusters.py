"""One cluster client a process and configuration: Spark's workers live on, so their connections may too."""

from __future__ import annotations

import os

from penstock.client.cluster import Cluster
from penstock.client.config import ClientConfig
from pyspark_penstock.options import CommonOptions

_CLUSTERS: dict[tuple[int, ClientConfig], Cluster] = {}


def cluster_for(options: CommonOptions) -> Cluster:
    assert options.client is not None, "there are no brokers, only a path"
    return cluster_of(options.client)


def cluster_of(config: ClientConfig) -> Cluster:
    """Never one that a parent process opened: after a fork two would read from the same sockets."""
    key = os.getpid(), config
    cluster = _CLUSTERS.get(key)
    if cluster is None:
        cluster = _CLUSTERS[key] = Cluster(config)
    return cluster


def close_clusters() -> None:
    """Closes this process's connections; whoever asks next gets new ones."""
    for key in [key for key in _CLUSTERS if key[0] == os.getpid()]:
        _CLUSTERS.pop(key).close()
