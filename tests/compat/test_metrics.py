"""A broker's metrics as Prometheus scrapes them, after real traffic."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Producer
from tests.support.served_broker import ServedBroker

_LINE = re.compile(r'^[a-z_]+(?:\{(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+\})? -?[0-9.e+-]+$')


def test_a_scrape_tells_of_the_traffic_in_prometheus_format(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, metrics_listener="127.0.0.1:0") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            producer.produce("t", f"{number}")
        assert producer.flush(30) == 0
        (address,) = re.findall(r"http://\S+/metrics", broker.output)
        with urlopen(address, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert [line for line in values if not _LINE.match(line)] == []
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 10' in values
    assert 'kafka_log_log_logendoffset{topic="t",partition="0"} 10' in values
    assert "kafka_controller_kafkacontroller_activecontrollercount 1" in values
    names = {line.split(" ")[2] for line in lines if line.startswith("# TYPE")}
    assert {line.split("{")[0].split(" ")[0] for line in values} <= {
        name + suffix for name in names for suffix in ("", "_bucket", "_sum", "_count")
    }
