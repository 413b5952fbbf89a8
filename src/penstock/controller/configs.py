"""Configurations of brokers: from what was asked and the image to store operations."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.metadata import layout
from penstock.metadata.image import Image
from penstock.metadata.store import Create, SetData, Transaction


def decide_broker_config(image: Image, entity: str, config: Mapping[str, str]) -> Transaction:
    """What to write so that a broker's own dynamic configuration, or the cluster's default of them, is `config`."""
    path, data = layout.broker_config_path(entity), layout.encode_config(config)
    if entity in image.broker_configs:
        return Transaction(operations=(SetData(path=path, data=data),))
    return Transaction(operations=(Create(path=path, data=data),))
