"""A partition as answers about topics show it."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.metadata.image import Image, TopicImage


def partition_fields(image: Image, topic: TopicImage, number: int) -> dict[str, Any]:
    state = topic.partitions[number]
    failed = image.offline_replicas.get((topic.name, number), ()) if image.offline_replicas else ()
    is_led = state.leader in image.brokers
    return {
        "error_code": ErrorCode.none if is_led else ErrorCode.leader_not_available,
        "partition_index": number,
        "leader_id": state.leader if is_led else -1,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": tuple(
            broker for broker in state.replicas if broker not in image.brokers or broker in failed
        ),
    }
