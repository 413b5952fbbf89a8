"""The metrics port: counters that cost an addition, and families that tell of them in Prometheus's text format.

Names are Kafka's, turned into Prometheus style as its JMX exporter does: `kafka.server:type=BrokerTopicMetrics,
name=BytesInPerSec` is `kafka_server_brokertopicmetrics_bytesin_total`. What Kafka has no name for begins with `penstock_`.

A family reads its values when somebody asks, so that what is counted costs nothing while nobody does. Families are
collected one sample at a time: a scrape of thousands of partitions can be cut into slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple

_BUCKETS = 27
"""Powers of two of a microsecond, up to about a minute."""

Labels = tuple[tuple[str, str], ...]


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    labels: Labels
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """Everything that goes by one name."""

    name: str
    kind: Kind
    help: str
    collect: Callable[[], Iterable[Sample]]


class Histogram:
    """Durations, in buckets that double."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (_BUCKETS + 1)
        self.sum_us = 0

    def add(self, duration_us: int, count: int = 1) -> None:
        bucket = duration_us.bit_length()
        self.counts[bucket if bucket < _BUCKETS else _BUCKETS] += count
        self.sum_us += duration_us * count

    def __add__(self, other: Histogram) -> Histogram:
        both = Histogram()
        both.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        both.sum_us = self.sum_us + other.sum_us
        return both

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile_us(self, share: float) -> int:
        """The upper edge of the bucket that this share of all durations does not pass; 0 where there are none."""
        wanted = share * self.count
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return int(1 << bucket)
        return 0

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """As Prometheus wants it, in milliseconds: cumulative buckets, sum and count. Empty edges are left out."""
        seen = 0
        for bucket, count in enumerate(self.counts[:-1]):
            seen += count
            if count:
                yield Sample((*labels, ("le", f"{(1 << bucket) / 1000:g}")), seen, "_bucket")
        total = seen + self.counts[-1]
        yield Sample((*labels, ("le", "+Inf")), total, "_bucket")
        yield Sample(labels, self.sum_us / 1000, "_sum")
        yield Sample(labels, total, "_count")


def gauge(name: str, help: str, read: Callable[[], float]) -> Family:
    """A family of one value."""
    return Family(name, Kind.GAUGE, help, lambda: (Sample((), read()),))


def counter(name: str, help: str, read: Callable[[], float]) -> Family:
    return Family(name, Kind.COUNTER, help, lambda: (Sample((), read()),))


def lines(families: Iterable[Family]) -> Iterator[str]:
    """The text format, a line at a time, each with its line feed."""
    for name, kind, text, collect in families:
        yield f"# HELP {name} {text}\n# TYPE {name} {kind.value}\n"
        for labels, value, suffix in collect():
            told = ",".join(f'{label}="{_escaped(held)}"' for label, held in labels)
            number = repr(int(value)) if value == int(value) else repr(value)
            yield f"{name}{suffix}{{{told}}} {number}\n" if told else f"{name}{suffix} {number}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
