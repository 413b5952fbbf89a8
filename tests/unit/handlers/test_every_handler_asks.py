"""Who may do nothing does nothing and learns nothing: every API asks the authoriser before it acts."""

from __future__ import annotations

import dataclasses
import datetime
import io
import uuid
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)
from tests.support.wire import header
from tests.unit.handlers.test_produce_and_fetch import batch, produce
from tests.unit.handlers.world import Answer, World

from penstock.handlers.api import CloseConnectionError
from penstock.handlers.authoriser import Action, Resource
from penstock.handlers.registry import make_registry
from penstock.server.dispatch import Dispatcher

APIS = {key: api for key, api in make_registry(cluster=True).items() if key in api_key_map}
"""Without those that only brokers of ZooKeeper's time know: `test_cluster_apis` has them."""
SECOND = datetime.timedelta(seconds=1)
FREE = {
    17: "SaslHandshake, which is refused here",
    18: "ApiVersions, which says what everybody may know",
    36: "SaslAuthenticate, which is refused here",
    60: "DescribeCluster, whose brokers Metadata tells too",
}
"""What nobody needs a permission for, in Kafka too."""


class Deaf:
    """Allows nothing, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Action, Resource, str]] = []

    def allows(self, principal: str, action: Action, resource: Resource, name: str) -> bool:
        self.asked.append((action, resource, name))
        return False


def one_of_each(schema: type, topic_id: uuid.UUID) -> Any:
    """A request with one element in every list, about topic t and group g."""

    def primitive(field: Any) -> Any:
        kind = get_schema_field_type(field)
        if kind == "string":
            if field.name == "name" and any(one.name == "topic_id" for one in dataclasses.fields(schema)):
                return None if is_optional(field) else "t"  # one of the two
            return "g" if "group" in field.name else "1" if field.name == "resource_name" else "t"
        if kind == "uuid":
            return topic_id
        if kind in ("bytes", "records"):
            return batch(b"v") if kind == "records" else b""
        if kind.startswith("timedelta"):
            return datetime.timedelta(milliseconds=10_000)
        if kind == "bool":
            return False
        if kind == "float64":
            return 0.0
        return {"resource_type": 4, "replication_factor": 1, "num_partitions": 1, "acks": 1}.get(field.name, 0)

    fields = {}
    for field in dataclasses.fields(schema):
        kind = classify_field(field)
        if isinstance(kind, EntityTupleField):
            fields[field.name] = () if field.name == "assignments" else (one_of_each(kind.type_, topic_id),)
        elif isinstance(kind, EntityField):
            fields[field.name] = one_of_each(kind.type_, topic_id)
        elif isinstance(kind, PrimitiveTupleField):
            fields[field.name] = () if field.name.endswith(("filter", "filters")) else (primitive(field),)
        else:
            fields[field.name] = primitive(field)
    return schema(**fields)


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: APIS[key].name)
def test_who_may_do_nothing_does_nothing(tmp_path: Path, key: int) -> None:
    # A12, A10
    world = World(tmp_path, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    world.create_topic("t")
    produce(world, {("t", 0): batch(b"secret-of-t")})
    world.send(10, 4, key_type=1, coordinator_keys=("t",))
    world.loop.turn()
    begun = world.send(22, 4, transactional_id="t", transaction_timeout=SECOND, producer_id=-1, producer_epoch=-1)
    world.loop.turn()
    assert begun.read().error_code == ErrorCode.none
    before = {node.path: node.data for node in world.store.nodes()}
    deaf = Deaf()
    world.services.authoriser = deaf
    dispatch = Dispatcher(APIS, world.services).dispatch
    for version in (APIS[key].low, APIS[key].high):
        schema = load_request_schema(key, version)
        body = io.BytesIO()
        entity_writer(schema)(body, one_of_each(schema, world.image.topics["t"].topic_id))
        deaf.asked.clear()
        try:
            outcome = dispatch(header(key, version, schema) + body.getvalue(), world._peer)
        except CloseConnectionError:
            continue
        answer = Answer(key, version, APIS[key].flexible_from, outcome)
        world.loop.turn()
        assert (deaf.asked == []) == (key in FREE), version
        assert b"secret-of-t" not in (answer._content or b"")
    world.loop.turn()
    assert {node.path: node.data for node in world.store.nodes()} == before
    assert world.partitions.get("t", 0).log.end_offset == 1
    assert world.partitions.get("t", 0).log.log_start_offset == 0
