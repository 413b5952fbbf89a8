"""Versions are agreed on, answers are matched, and what goes wrong is said in one sentence with the broker's name."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.support.processes import free_port
from tests.unit.client.scripted_broker import FETCH, METADATA, ScriptedBroker, still_time

from penstock.base.errors import ConfigError
from penstock.client.cluster import Cluster
from penstock.client.config import Address, client_config
from penstock.client.connection import Connection
from penstock.client.errors import UnknownTopicError, UnreachableError, UnsupportedByBrokerError
from penstock.protocol.headers import API_VERSIONS_KEY
from penstock.protocol.schemas import codec


def test_the_highest_version_that_both_speak_is_used() -> None:
    with ScriptedBroker(highest={FETCH: 11}) as broker:
        connection = Connection(broker.address, broker.config())
        assert connection.version(FETCH, "Fetch", 4, 18) == 11
        assert connection.version(FETCH, "Fetch", 4, 9) == 9
        connection.close()


def test_an_api_that_is_not_served_is_named() -> None:
    with ScriptedBroker(highest={FETCH: 3}) as broker:
        connection = Connection(broker.address, broker.config())
        with pytest.raises(
            UnsupportedByBrokerError, match=r"serves Fetch in versions 0 to 3, needed is one of 4 to 18"
        ):
            connection.version(FETCH, "Fetch", 4, 18)
        with pytest.raises(UnsupportedByBrokerError, match=r"127\.0\.0\.1:\d+ does not serve Share"):
            connection.version(76, "Share", 0, 1)
        connection.close()


def test_a_broker_that_knows_only_old_api_versions_is_asked_again_in_version_0() -> None:
    asked = []

    def answer(version: int, _request: Any) -> Any:
        asked.append(version)
        shape = codec(API_VERSIONS_KEY, 0).response
        if version > 0:
            body = codec(API_VERSIONS_KEY, 0).encode(shape.make(error_code=ErrorCode.unsupported_version, api_keys=()))
            return struct.pack(">ii", len(body) + 4, 1) + body
        keys = (shape.api_keys.make(api_key=FETCH, min_version=4, max_version=11),)
        return shape.make(error_code=ErrorCode.none, api_keys=keys, throttle_time=timedelta())

    with ScriptedBroker({API_VERSIONS_KEY: answer}) as broker:
        connection = Connection(broker.address, broker.config())
        assert (asked, connection.version(FETCH, "Fetch", 4, 18)) == ([3, 0], 11)
        connection.close()


def test_what_is_no_broker_is_told_from_one() -> None:
    with (
        ScriptedBroker({API_VERSIONS_KEY: lambda _version, _request: b"HTTP/1.1 400 Bad Request\r\n"}) as broker,
        pytest.raises(UnreachableError, match="does not speak Kafka's protocol"),
    ):
        Connection(broker.address, broker.config())


def test_an_answer_to_another_request_ends_the_connection() -> None:
    with (
        ScriptedBroker({API_VERSIONS_KEY: lambda _version, _request: struct.pack(">iii", 8, 99, 0)}) as broker,
        pytest.raises(UnreachableError, match="answered request 99 instead of 1"),
    ):
        Connection(broker.address, broker.config())


def test_a_broker_that_never_answers_is_given_up_in_time() -> None:
    with (
        ScriptedBroker({API_VERSIONS_KEY: lambda _version, _request: b""}) as broker,
        pytest.raises(UnreachableError, match="gave no answer in 30 ms"),
    ):
        Connection(broker.address, broker.config(request_timeout_ms=30))


def test_nobody_listening_is_retried_and_then_said() -> None:
    config = client_config({"bootstrap.servers": f"127.0.0.1:{free_port()}", "default.api.timeout.ms": "1000"})
    time = still_time()
    before_ms = time.clock.monotonic_ms()
    with pytest.raises(UnreachableError, match=r"broker 127\.0\.0\.1:\d+ cannot be reached: Connection refused"):
        Cluster(config, time).metadata()
    assert 1000 <= time.clock.monotonic_ms() - before_ms < 2100


@pytest.mark.parametrize("host", ["a..b", "x" * 300])
def test_a_host_that_can_be_no_name_is_said_to_be_out_of_reach(host: str) -> None:
    with pytest.raises(UnreachableError, match=rf"broker {host}:9092 cannot be reached: "):
        Connection(Address(host, 9092), client_config({"bootstrap.servers": "a:1"}))


def test_the_second_bootstrap_server_is_asked_if_the_first_is_down() -> None:
    with ScriptedBroker() as broker:
        config = client_config({"bootstrap.servers": f"127.0.0.1:{free_port()},{broker.address}"})
        with Cluster(config, still_time()) as cluster:
            assert list(cluster.metadata().topics) == ["t"]


def test_a_connection_serves_many_calls_and_is_opened_anew_when_the_broker_closed_it() -> None:
    with ScriptedBroker() as broker, Cluster(broker.config(), still_time()) as cluster:
        cluster.metadata()
        cluster.metadata()
        assert broker.connections == 1
        answer = broker.handlers[METADATA]
        closes = [None]
        broker.handlers[METADATA] = lambda version, request: closes.pop() if closes else answer(version, request)
        assert list(cluster.metadata(["t"]).topics) == ["t"]
        assert broker.connections == 2


def test_a_topic_that_is_not_there_is_named() -> None:
    with ScriptedBroker() as broker, Cluster(broker.config(), still_time()) as cluster:
        with pytest.raises(UnknownTopicError, match=r"the cluster at 127.* has no topics x, y"):
            cluster.topics(["x", "t", "y"])
        assert all(not request.allow_auto_topic_creation for request in broker.requests[METADATA])


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    with ScriptedBroker() as broker, Cluster(broker.config(), still_time()) as cluster:
        broker.topics = {"orders": 1, "orders-late": 2, "__offsets": 1, "clicks": 1}
        assert list(cluster.topics_like("orders")) == ["orders"]
        assert list(cluster.topics_like("o.*")) == ["orders", "orders-late"]
        assert list(cluster.topics_like(".*offsets")) == []
        with pytest.raises(ConfigError, match=r"'\(' is no regular expression"):
            cluster.topics_like("(")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", Address("a", 1)),
        ("PLAINTEXT://a.b:9092", Address("a.b", 9092)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_addresses_are_read_as_kafka_reads_them(text: str, address: Address) -> None:
    assert client_config({"bootstrap.servers": text}).bootstrap_servers == (address,)


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", "a:0", "a:70000", "a:b", "::1:9"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        client_config({"bootstrap.servers": text})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("isolation.level", "none", "isolation.level='none' must be one of read_uncommitted, read_committed"),
        ("request.timeout.ms", "soon", "request.timeout.ms='soon' is not a valid integer"),
        ("security.protocol", "KERBEROS", "security.protocol='KERBEROS'"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        client_config({"bootstrap.servers": "a:1", name: value})
    assert complaint in str(refusal.value)
