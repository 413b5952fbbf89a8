"""What went through a topic (row B9): counted by the handlers, per topic; the sum outlives the topics."""

from __future__ import annotations

FIELDS = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
)


class Traffic:
    """One topic's counters, shared by its partitions."""

    __slots__ = FIELDS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        """As they came, not as they would have been stored."""
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        """Unexpected errors only: what a client did wrong is rejected, not failed."""
        self.failed_fetch_requests = 0

    def add(self, other: Traffic) -> None:
        for field in FIELDS:
            setattr(self, field, getattr(self, field) + getattr(other, field))


class TrafficByTopic:
    def __init__(self) -> None:
        self._topics: dict[str, Traffic] = {}
        self._gone = Traffic()

    def of(self, topic: str) -> Traffic:
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = Traffic()
        return traffic

    def forget(self, topic: str) -> None:
        """The topic is gone; what it did still counts."""
        traffic = self._topics.pop(topic, None)
        if traffic is not None:
            self._gone.add(traffic)

    def total(self) -> Traffic:
        total = Traffic()
        total.add(self._gone)
        for traffic in self._topics.values():
            total.add(traffic)
        return total

    def topics(self) -> dict[str, Traffic]:
        return dict(self._topics)
