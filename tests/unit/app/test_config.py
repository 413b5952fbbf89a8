"""A broker's settings: where they come from, what beats what, what is named."""

from __future__ import annotations

import pytest

from penstock.app.config import BrokerConfig, merge, read_properties
from penstock.base.errors import ConfigError
from penstock.server.listener import parse_listener


def test_options_beat_the_file_and_set_beats_them_all() -> None:
    content = "log.dirs=/file\nlisteners=PLAINTEXT://:1\nnum.partitions=3\n"
    merged = merge(content, "/option", "127.0.0.1:2", ["num.partitions=4", "listeners=PLAINTEXT://:5"])
    assert merged == {"log.dirs": "/option", "listeners": "PLAINTEXT://:5", "num.partitions": "4"}


def test_where_an_option_says_to_listen_is_what_clients_are_told() -> None:
    content = "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://localhost:9092\n"
    assert merge(content, None, "127.0.0.1:2", []) == {"listeners": "PLAINTEXT://127.0.0.1:2"}
    told = "advertised.listeners=PLAINTEXT://h:3"
    assert merge(content, None, "127.0.0.1:2", [told])["advertised.listeners"] == "PLAINTEXT://h:3"
    assert merge(content, None, None, [])["advertised.listeners"] == "PLAINTEXT://localhost:9092"


def test_a_properties_file_as_java_reads_it() -> None:
    content = "# comment\n! another\n a = 1 \nb:2\nc=x,\\\n   y\n\n"
    assert read_properties(content) == {"a": "1", "b": "2", "c": "x,y"}
    with pytest.raises(ConfigError, match="key=value"):
        read_properties("nonsense")


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("a 1\n", {"a": "1"}),
        ("a\t= 1", {"a": "1"}),
        ("url: http://h/?x=1", {"url": "http://h/?x=1"}),
        ("a=\n", {"a": ""}),
        ("a=1\\", {"a": "1"}),
        ("a=1,\\\n  # 2,\\\r\n3\nb=4", {"a": "1,# 2,3", "b": "4"}),
        ("# no setting \\\na=1", {"a": "1"}),
        ("a=C\\:\\\\data\\u0020x\\t", {"a": "C:\\data x"}),
        ("a=ends in a backslash\\\\\nb=1", {"a": "ends in a backslash\\", "b": "1"}),
        ("k\\=ey=1", {"k=ey": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a = \u2028x", {"a": "x"}),
    ],
)
def test_properties_in_all_of_javas_ways_of_writing_them(content: str, read: dict[str, str]) -> None:
    assert read_properties(content) == read


def test_what_is_not_used_is_named() -> None:
    config = BrokerConfig(
        {
            "process.roles": "broker,controller",
            "nonsense": "1",
            "log.message.format.version": "3",
            "log.segment.bytes": "5000000",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        }
    )
    text = "\n".join(config.complaints)
    assert "process.roles is for KRaft" in text
    assert "nonsense is not known" in text
    assert "log.message.format.version is from older" in text
    assert "log.segment.bytes" not in text
    assert config.log_values["segment.bytes"] == 5_000_000
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zookeeper.session.timeout.ms": "1"}, "zookeeper.session.timeout.ms"),
        ({"zookeeper.connect": "zoo:x"}, "zookeeper.connect='zoo:x' must be host:port"),
        ({"zookeeper.connect": "/kafka"}, "must be host:port"),
        ({"zookeeper.connect": "zoo:2181,"}, "must be host:port"),
        ({"zookeeper.connect": "zoo:65536,two:2181"}, "must be host:port"),
        ({"zookeeper.connect": "[::1]:99999/a"}, "must be host:port"),
        ({"zookeeper.connect": "zoo:2181/a//b"}, "perhaps a path behind the last"),
        ({"zookeeper.connect": "zoo:2181/../b"}, "perhaps a path behind the last"),
        ({"num.partitions": "x"}, "num.partitions"),
        ({"num.partitions": "0"}, "at least 1"),
        ({"listeners": "SSL://:9093"}, "only PLAINTEXT"),
        ({"listeners": "MINE://:9093"}, "listener.security.protocol.map"),
        ({"listeners": ""}, "listens somewhere"),
        ({"log.dirs": ""}, "log.dirs is empty"),
        ({"metrics.listener": "nonsense"}, "metrics.listener='nonsense' is not host:port"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(settings)


@pytest.mark.parametrize("connect", ["zoo", "a:1, b:2,[::1]:2181", "10.0.0.1:2181/clusters/one/", "zoo:2181/", ""])
def test_zookeeper_is_named_as_kafka_names_it(connect: str) -> None:
    assert BrokerConfig({"zookeeper.connect": connect})["zookeeper.connect"] == connect


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("PLAINTEXT://:9092", "", 9092), ("plaintext://h:0", "h", 0), ("PLAINTEXT://[::1]:9092", "::1", 9092)],
)
def test_listeners_are_read_as_kafka_writes_them(text: str, host: str, port: int) -> None:
    address = parse_listener(text)
    assert (address.name, address.host, address.port) == ("PLAINTEXT", host, port)
    assert parse_listener(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "h:1", "PLAINTEXT://h", "PLAINTEXT://h:x", "PLAINTEXT://h:70000", "A://::1:9092", "A://h:²"]
)
def test_what_is_no_listener_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_listener(text)


def test_the_number_of_a_broker() -> None:
    assert BrokerConfig({}).node_id == 1
    assert BrokerConfig({"broker.id": "4"}).node_id == 4
    assert BrokerConfig({"broker.id": "4", "node.id": "5"}).node_id == 5
    assert BrokerConfig({"broker.id": "-1"}).node_id == 1
    in_cluster = {"zookeeper.connect": "127.0.0.1:2181"}
    assert BrokerConfig({**in_cluster, "broker.id": "4"}).node_id == 4
    assert BrokerConfig(in_cluster).node_id < 0, "it is still to be found"
