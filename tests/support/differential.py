"""The same requests to several brokers, and their answers compared field by field."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.processes import NotInTime, wait_until
from tests.support.wire import Wire, has_schema

Values = Mapping[str, Any]

_LABELS = (
    "name", "topic", "topic_name", "partition_index", "partition", "partition_id", "index", "resource_name", "group_id",
    "group", "member_id", "feature", "api_key", "broker_id", "node_id", "key",
)  # fmt: skip
_IDENTITIES = {"topic_id", "cluster_id"}
_IGNORED = {
    "throttle_time", "error_message", "host", "port", "log_dir", "total_bytes", "usable_bytes", "producer_id",
    "documentation", "session_id", "node_endpoints", "coordinator_host", "member_id", "batch_index_error_message",
}  # fmt: skip


def flat(answer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its path. Elements of lists are named by what they are about, so that their order does not count."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name in _IGNORED:
                continue
            if name in _IDENTITIES:
                value = value is not None and bool(getattr(value, "int", value))
            yield from flat(value, f"{path}.{name}" if path else name)
    elif isinstance(answer, list) and answer and isinstance(answer[0], dict):
        yield f"{path}.count", len(answer)
        for number, one in enumerate(answer):
            label = next((one[name] for name in _LABELS if one.get(name) is not None), number)
            yield from flat(one, f"{path}[{label}]")
    else:
        yield path, answer


def _elements(answer: dict[str, Any]) -> set[str]:
    return {path[: match.end()] for path in answer for match in re.finditer(r"\]", path)}


def _elements_told_once(answer: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """An element that only one side has is one difference, not one for each of its fields."""
    known = _elements(other)
    told: dict[str, Any] = {}
    for path, value in answer.items():
        ends = [match.end() for match in re.finditer(r"\]", path)]
        alone = next((path[:end] for end in ends if path[:end] not in known), None)
        if alone is not None:
            told[alone] = "there"
        elif not path.endswith(".count") and value != []:
            told[path] = value
    return told


@dataclass(frozen=True, kw_only=True)
class Known:
    """A difference that is meant, and why."""

    case: str
    path: str
    reason: str
    kafka: str = ""
    """Only against this version; empty: against every one."""

    def covers(self, kafka: str, case: str, path: str) -> bool:
        return (
            self.kafka in ("", kafka)
            and re.fullmatch(self.case, case) is not None
            and re.fullmatch(self.path, path) is not None
        )


@dataclass(kw_only=True)
class Case:
    """One request, in every version that both brokers serve."""

    name: str
    key: int
    values: Values | Callable[[Mapping[str, Any], int], Values]
    """As it is sent; a function gets the topics' ids by name, and the version."""
    versions: range = range(100)
    is_change: bool = False
    """It changes something: it is sent once to each broker, and its answer is final."""


@dataclass
class Comparison:
    kafka: str
    requests: int = 0
    differences: list[str] = field(default_factory=list)
    used: set[int] = field(default_factory=set)


class Pair:
    """Apache Kafka and Penstock, asked side by side."""

    def __init__(self, kafka_version: str, kafka: Wire, penstock: Wire, known: list[Known]) -> None:
        self.kafka, self.penstock = kafka, penstock
        self.result = Comparison(kafka_version)
        self.patience_seconds = 20.0
        self._known = known
        self._ids: dict[Wire, dict[str, Any]] = {kafka: {}, penstock: {}}

    def versions(self, case: Case) -> list[int]:
        served = self.penstock.versions(case.key)
        both = [version for version in self.kafka.versions(case.key) if version in served and version in case.versions]
        return [version for version in both if has_schema(case.key, version)]

    def learn(self, *topics: str) -> None:
        """Waits until both know these topics and who leads them, and remembers their ids."""
        for wire in (self.kafka, self.penstock):

            def led(wire: Wire = wire) -> dict[str, Any] | None:
                asked = {"topics": [{"name": topic} for topic in topics], "allow_auto_topic_creation": False}
                found = wire.ask(3, 12, asked)["topics"]
                is_led = all(
                    topic["error_code"] == "none" and all(one["leader_id"] >= 0 for one in topic["partitions"])
                    for topic in found
                )
                return {topic["name"]: topic["topic_id"] for topic in found} if is_led else None

            self._ids[wire].update(wait_until(led, seconds=60, what=f"{topics} are led"))

    def _ask(self, wire: Wire, case: Case, version: int) -> dict[str, Any] | None:
        values = case.values if isinstance(case.values, Mapping) else case.values(self._ids[wire], version)
        answer = wire.ask(case.key, version, values)
        return None if answer is None else dict(flat(answer))

    def run(self, case: Case) -> None:
        for version in self.versions(case):
            self.result.requests += 1
            name = f"{case.name} v{version}"
            ours = self._ask(self.penstock, case, version)
            theirs = self._ask(self.kafka, case, version)
            found = self._compare(name, theirs, ours)
            if found and not case.is_change:
                found = self._wait(case, version, name, ours) or []
            self.result.differences += found

    def _wait(self, case: Case, version: int, name: str, ours: dict[str, Any] | None) -> list[str]:
        """Kafka's metadata arrive a little after the change is answered: it is asked again for a while."""
        last: list[str] = []

        def agrees() -> bool:
            last[:] = self._compare(name, self._ask(self.kafka, case, version), ours)
            return not last

        try:
            wait_until(agrees, seconds=self.patience_seconds, what=name)
        except NotInTime:
            return last
        return []

    def _compare(self, case: str, theirs: dict[str, Any] | None, ours: dict[str, Any] | None) -> list[str]:
        if theirs is None or ours is None:
            theirs, ours = {"closed": theirs is None}, {"closed": ours is None}
        theirs, ours = _elements_told_once(theirs, ours), _elements_told_once(ours, theirs)
        found = []
        for path in dict.fromkeys((*theirs, *ours)):
            expected, got = theirs.get(path, "absent"), ours.get(path, "absent")
            if expected != got and not self._is_known(case, path):
                found.append(f"{case}: {path}: Kafka {self.result.kafka} {expected!r}, Penstock {got!r}")
        return found

    def _is_known(self, case: str, path: str) -> bool:
        for number, known in enumerate(self._known):
            if known.covers(self.result.kafka, case, path):
                self.result.used.add(number)
                return True
        return False
