"""DescribeCluster (key 60), versions 0-2, flexible from 0.

Behaviour: the brokers as the asking listener reaches them, the controller, the cluster's id.
Versions: 1 endpoint type (KIP-919; only brokers are here); 2 fenced brokers.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Resource
from penstock.handlers.operations import NOT_ASKED, allowed_operations

BROKERS = 1


def handle_describe_cluster(request: Any, context: Context) -> Any:
    response = context.response
    image = context.services.image
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    error_code, message = ErrorCode.none, None
    if endpoint_type != BROKERS:
        error_code, message = ErrorCode.mismatched_endpoint_type, "this is a broker, not a controller"
    brokers = tuple(
        response.brokers.make(
            broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=False
        )
        for broker_id, broker in sorted(image.brokers.items())
        for endpoint in broker.endpoints
        if endpoint.listener == context.peer.listener and error_code == ErrorCode.none
    )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = allowed_operations(context, Resource.CLUSTER, CLUSTER_NAME)
    return response.make(
        throttle_time=timedelta(),
        error_code=error_code,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=(image.cluster_id or "") if error_code == ErrorCode.none else "",
        controller_id=image.controller_id if error_code == ErrorCode.none else -1,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
