"""Reading and writing over TLS with SASL, against Apache Kafka: its own listener, its own users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from penstock.client.errors import AuthenticationError
from pyspark_penstock.batch import BatchReader
from pyspark_penstock.options import read_batch_options
from tests.pipelines.test_sink import batch, writer
from tests.pipelines.topics import new_topic
from tests.support import judges
from tests.support.kafka_jvm import QUICK_JVM, KafkaBroker
from tests.support.kafka_reads import client_config

PASSWORD = "alice's secret"
JAAS = 'org.apache.kafka.common.security.{0}LoginModule required username="alice" password="{1}"{2};'


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[KafkaBroker]:
    judges.require("kafka-4.3")
    folder = tmp_path_factory.mktemp("secured")
    identity = authority.issue_cert("127.0.0.1")
    store = folder / "broker.pem"
    key = serialization.load_pem_private_key(identity.private_key_pem.bytes(), password=None)
    pem, form, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    store.write_bytes(
        key.private_bytes(pem, form, plain) + identity.cert_chain_pems[0].bytes()
    )  # Java reads PKCS 8 only
    properties: dict[str, str | int] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": JAAS.format("plain.Plain", PASSWORD, f' user_alice="{PASSWORD}"'),
        "listener.name.secure.scram-sha-512.sasl.jaas.config": JAAS.partition(" ")[0].format("scram.Scram") + " required;",
    }  # fmt: skip
    broker = KafkaBroker("4.3", folder, heap_mb=512, jvm_flags=QUICK_JVM, **properties)
    broker.listen("SECURE", "SASL_SSL")
    with broker:
        admin = AdminClient(client_config(broker.bootstrap_servers))
        user = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([user]).values():
            future.result(60)
        yield broker


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", "plain.Plain"), ("SCRAM-SHA-512", "scram.Scram")])
def test_rows_go_both_ways_over_tls_with_sasl(
    secured: KafkaBroker, authority: trustme.CA, tmp_path: Path, mechanism: str, module: str
) -> None:
    topic = new_topic(secured.bootstrap_servers)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    server = f"127.0.0.1:{secured.ports['SECURE']}"
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": JAAS.format(module, PASSWORD, ""),
        "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
        "kafka.ssl.truststore.type": "PEM",
    }
    task = writer(server, topic=topic, delivery="exactly_once", **options)
    task.commit([task.write(iter([batch(value=[b"1", b"2"])]))])
    source = {"kafka.bootstrap.servers": server, "subscribe": topic, **options}
    reader = BatchReader(read_batch_options({**source, "mode": "wire"}))
    assert [value for one in reader.partitions() for rows in reader.read(one) for value in rows["value"].to_pylist()] == [b"1", b"2"]  # fmt: skip
    wrong = {**source, "kafka.sasl.jaas.config": JAAS.format(module, "guess", "")}
    with pytest.raises(AuthenticationError, match="the broker refuses these credentials: "):
        BatchReader(read_batch_options(wrong)).partitions()
