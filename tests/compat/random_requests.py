"""Random requests that change nothing, from a small vocabulary, for the comparison with Apache Kafka."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.compat.differential_names import COMPACT, DATA, EMPTY, NO_ID, T0, UNKNOWN_ID
from tests.support.differential import Case

_TOPIC = st.sampled_from([DATA, COMPACT, EMPTY, "d-missing", "a/b", "", "..", "x" * 250])
_NEW_TOPIC = st.sampled_from(["d-new", "d.data", DATA, "a/b", "", "d-new-" + "x" * 240])
_PARTITION = st.sampled_from([0, 1, 2, 9, -1])
_STAMP = st.sampled_from([-7, -6, -5, -4, -3, -2, -1, 0, T0, T0 + 3, T0 + 10, T0 + 20, T0 + 21, 2**62])
_COUNT = st.sampled_from([-2, -1, 0, 1, 2, 3, 5])
_KEYS = st.sampled_from(
    ["retention.ms", "segment.ms", "cleanup.policy", "compression.type", "min.insync.replicas",
     "max.message.bytes", "preallocate", "flush.ms", "nonsense", "min.cleanable.dirty.ratio", "message.timestamp.type"]
)  # fmt: skip
_VALUES = st.sampled_from(
    ["-2", "-1", "0", "1", "13", "14", "1000", "2147483648", "x", "", " 5 ", "+5", "0x10", "1e3", "true", "TRUE", "delete",
     "compact", "delete,compact", "compact,compact", "gzip", "producer", "0.5", "1.1", "CreateTime"]
)  # fmt: skip
_EPOCH = st.sampled_from([-1, 0, 1, 9])


def _few(strategy: st.SearchStrategy[Any], low: int = 0, unique_by: Any = None) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=low, max_size=3, unique_by=unique_by)


def _named(entry: dict[str, Any]) -> Any:
    return entry["name"]


_OFFSETS = st.fixed_dictionaries(
    {
        "replica_id": st.just(-1),
        "isolation_level": st.sampled_from([0, 1]),
        "topics": _few(
            st.fixed_dictionaries(
                {
                    "name": _TOPIC,
                    "partitions": _few(
                        st.fixed_dictionaries(
                            {"partition_index": _PARTITION, "timestamp": _STAMP, "current_leader_epoch": _EPOCH}
                        ),
                        unique_by=lambda entry: entry["partition_index"],
                    ),
                }
            ),
            unique_by=_named,
        ),
        "timeout": st.just(1000),
    }
)
_METADATA = st.fixed_dictionaries(
    {
        "topics": _few(st.fixed_dictionaries({"name": _TOPIC, "topic_id": st.just(NO_ID)}), 1, unique_by=_named),
        "allow_auto_topic_creation": st.booleans(),
        "include_topic_authorized_operations": st.booleans(),
        "include_cluster_authorized_operations": st.booleans(),
    }
)
_EPOCHS = st.fixed_dictionaries(
    {
        "replica_id": st.just(-1),
        "topics": _few(
            st.fixed_dictionaries(
                {
                    "topic": _TOPIC,
                    "partitions": _few(
                        st.fixed_dictionaries(
                            {"partition": _PARTITION, "current_leader_epoch": _EPOCH, "leader_epoch": _EPOCH}
                        ),
                        1,
                        unique_by=lambda entry: entry["partition"],
                    ),
                }
            ),
            unique_by=lambda entry: entry["topic"],
        ),
    }
)
_CONFIG = st.fixed_dictionaries({"name": _KEYS, "value": _VALUES})
_CREATE = st.fixed_dictionaries(
    {
        "topics": _few(
            st.fixed_dictionaries(
                {
                    "name": _NEW_TOPIC,
                    "num_partitions": _COUNT,
                    "replication_factor": st.sampled_from([-1, 0, 1, 2]),
                    "configs": _few(_CONFIG, unique_by=_named),
                }
            ),
            unique_by=_named,
        ),
        "timeout": st.just(9000),
        "validate_only": st.just(True),
    }
)
_GROW = st.fixed_dictionaries(
    {
        "topics": _few(
            st.fixed_dictionaries(
                {
                    "name": _TOPIC,
                    "count": _COUNT,
                    "assignments": st.none()
                    | _few(st.fixed_dictionaries({"broker_ids": st.sampled_from([[1], [9], [1, 1], []])})),
                }
            ),
            unique_by=_named,
        ),
        "timeout": st.just(9000),
        "validate_only": st.just(True),
    }
)
_CHANGE = st.fixed_dictionaries(
    {
        "resources": st.lists(
            st.fixed_dictionaries(
                {
                    "resource_type": st.just(2),
                    "resource_name": st.sampled_from([DATA, COMPACT, "d-missing"]),
                    "configs": _few(
                        st.fixed_dictionaries(
                            {"name": _KEYS, "config_operation": st.sampled_from([0, 1, 2, 3]), "value": _VALUES}
                        ),
                        unique_by=_named,
                    ),
                }
            ),
            max_size=1,
        ),
        "validate_only": st.just(True),
    }
)
_DELETE = st.fixed_dictionaries(
    {
        "topics": st.just([{"name": None, "topic_id": UNKNOWN_ID}]),
        "topic_names": st.just(["d-missing"]),
        "timeout": st.just(9000),
    }
)


def cases() -> st.SearchStrategy[Case]:
    def case(name: str, key: int, values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Case]:
        return values.map(lambda drawn: Case(name=f"random: {name}", key=key, values=drawn, is_change=True))

    return st.one_of(
        case("offsets", 2, _OFFSETS),
        case("metadata", 3, _METADATA),
        case("epochs", 23, _EPOCHS),
        case("create", 19, _CREATE),
        case("grow", 37, _GROW),
        case("change", 44, _CHANGE),
        case("delete", 20, _DELETE),
    )
