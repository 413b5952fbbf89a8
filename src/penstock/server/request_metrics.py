"""How long requests take, by API and stage, as Kafka's RequestMetrics has it.

A request that need not wait has only local time; one that waits has remote time, until what it waited for came true.
There is no request queue to measure: requests are handled as they arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.base.metrics import Family, Histogram, Kind, Sample

_PREFIX = "kafka_network_requestmetrics_"


class ApiTimes:
    """One API's requests."""

    __slots__ = ("_answered", "_handled", "_waited", "errors", "name", "remote", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: dict[int, int] = {}
        """By version."""
        self.errors: dict[str, int] = {}
        self._answered = Histogram()
        """Of requests that were answered at once: their local time is all their time."""
        self._handled = Histogram()
        self._waited = Histogram()
        """Of requests that waited: their local time, and all of it."""
        self.remote = Histogram()

    @property
    def local(self) -> Histogram:
        return self._answered + self._handled

    @property
    def total(self) -> Histogram:
        return self._answered + self._waited

    def received(self, version: int) -> None:
        self.requests[version] = self.requests.get(version, 0) + 1

    def answered(self, local_us: int, count: int = 1) -> None:
        """So many requests were, together: each took as long as all of them."""
        self._answered.add(local_us, count)

    def waited(self, local_us: int, remote_us: int) -> None:
        self._handled.add(local_us)
        self.remote.add(remote_us)
        self._waited.add(local_us + remote_us)

    def failed(self, error: str) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1


def families(times: Mapping[int, ApiTimes]) -> Iterator[Family]:
    def requests() -> Iterator[Sample]:
        for one in times.values():
            for version, count in tuple(one.requests.items()):  # a scrape pauses, and requests come meanwhile
                yield Sample((("request", one.name), ("version", str(version))), count)

    def errors() -> Iterator[Sample]:
        for one in times.values():
            for error, count in tuple(one.errors.items()):
                yield Sample((("request", one.name), ("error", error)), count)

    yield Family(f"{_PREFIX}requests_total", Kind.COUNTER, "Requests, by API and version.", requests)
    yield Family(f"{_PREFIX}errors_total", Kind.COUNTER, "Answers that are an error as a whole, by its name.", errors)
    stages = {
        "localtimems": ("local", "Time in the handler, in ms."),
        "remotetimems": ("remote", "Time of waiting for other brokers, data or members, in ms."),
        "totaltimems": ("total", "Time from the request to its answer, in ms."),
    }
    for name, (field, text) in stages.items():
        yield Family(f"{_PREFIX}{name}", Kind.HISTOGRAM, text, lambda field=field: _histograms(times, field))  # type: ignore[misc]


def _histograms(times: Mapping[int, ApiTimes], field: str) -> Iterator[Sample]:
    for one in times.values():
        histogram: Histogram = getattr(one, field)
        if histogram.sum_us or any(histogram.counts):
            yield from histogram.samples((("request", one.name),))
