"""One Spark session a run, and the brokers whose topics it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tools.fetch_judges import spark_connector_jars
from tools.java import ensure_java_home

from pyspark_penstock.clusters import close_clusters
from pyspark_penstock.session import make_session
from tests.support import judges
from tests.support.kafka_directories import KafkaDirectory
from tests.support.kafka_jvm import KafkaBroker
from tests.support.served_broker import ServedBroker


@pytest.fixture(autouse=True, scope="module")
def connections() -> Iterator[None]:
    """Readers that run here, without Spark, leave none open."""
    yield
    close_clusters()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    os.environ["JAVA_HOME"] = str(ensure_java_home())
    session = make_session(
        "penstock-tests",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory),
            # For test_official_connector.py; where it is missing, those tests say so.
            **({"spark.jars": ",".join(map(str, jars))} if (jars := spark_connector_jars()) else {}),
        },
        jvm_output=directory / "jvm.log",
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def served_directory(
    kafka_directory: KafkaDirectory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The same directory, every kind of topic in it, served by the Kafka that wrote it and by Penstock."""
    directory = tmp_path_factory.mktemp(f"served-{kafka_directory.version}")
    kafka = KafkaBroker(kafka_directory.version, kafka_directory.copy(directory / "kafka"), log_retention_ms=-1)
    kafka_directory.copy_logs(directory / "data")
    with kafka, ServedBroker(directory, log_retention_ms="-1") as penstock:
        yield {"kafka": kafka.bootstrap_servers, "penstock": penstock.bootstrap_servers}


@pytest.fixture(scope="session")
def penstock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a Penstock that was empty when the run began. It keeps records of long ago, as some tests make."""
    with ServedBroker(tmp_path_factory.mktemp("live-penstock"), log_retention_ms="-1") as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same of an Apache Kafka."""
    judges.require("kafka-4.3")
    with KafkaBroker("4.3", tmp_path_factory.mktemp("live-kafka"), log_retention_ms=-1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session", params=["kafka", "penstock"])
def server(request: pytest.FixtureRequest) -> str:
    """Each of the two in turn."""
    servers: str = request.getfixturevalue(f"{request.param}_server")
    return servers
