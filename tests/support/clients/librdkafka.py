"""confluent-kafka, over librdkafka. Its groups, transactions and admin calls have tests of their own, in process."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.clients.session import serve, value_of


class Client:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def write(self, topic: str, codec: str, count: int, prefix: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "compression.type": codec,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )
        for number in range(count):
            producer.produce(topic, value_of(prefix, number), f"key-{number}")
        if producer.flush(60):
            raise TimeoutError("not all records were acknowledged")

    def read(self, topics: list[str], partitions: int, count: int, committed: bool = False) -> list[list[object]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "librdkafka",
                "enable.auto.commit": False,
                "check.crcs": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(partitions)])
        found: list[list[object]] = []
        while len(found) < count:
            message = consumer.poll(60)
            if message is None:
                raise TimeoutError(f"{len(found)} of {count} records came")
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            key, value = message.key(), message.value()
            found.append(
                [
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    None if key is None else key.decode(),
                    None if value is None else value.decode(),
                ]
            )
        consumer.close()
        return found


if __name__ == "__main__":
    serve(Client(sys.argv[1]))
