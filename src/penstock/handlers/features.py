"""The features of this broker (KIP-584), and UpdateFeatures (key 57), versions 0-2, flexible from 0.

Behaviour: the level of a feature comes with the version of Penstock; asking for the level it has is granted, for any
    other INVALID_UPDATE_VERSION. From version 2 the first refusal is the answer's own error.
Versions: 1 upgrade types and `validate_only`; 2 no result for each feature.
Differs from Kafka: no `metadata.version`, `kraft.version` and the like; levels cannot be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context
from penstock.handlers.authoriser import CLUSTER_NAME, Action, Resource


class Feature(NamedTuple):
    low: int
    high: int
    level: int
    """In force."""


FEATURES: Mapping[str, Feature] = {"transaction.version": Feature(low=0, high=2, level=2)}
"""By name; what is here is told by ApiVersions, as supported and as finalised."""

_RESULTS_BELOW = 2


def handle_update_features(request: Any, context: Context) -> Any:
    response = context.response
    error_code, message = ErrorCode.none, None
    if not context.services.authoriser.allows(context.peer.principal, Action.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        error_code = ErrorCode.cluster_authorization_failed
        message = f"{context.peer.principal} may not change features"
    if error_code == ErrorCode.none:
        for update in request.feature_updates:
            refusal = _refusal(update.feature, update.max_version_level)
            if refusal is not None:
                error_code, message = ErrorCode.invalid_update_version, refusal
                break
    results: tuple[Any, ...] = ()
    if error_code == ErrorCode.none and context.version < _RESULTS_BELOW:
        results = tuple(
            response.results.make(feature=update.feature, error_code=ErrorCode.none, error_message=None)
            for update in request.feature_updates
        )
    return response.make(throttle_time=timedelta(), error_code=error_code, error_message=message, results=results)


def _refusal(name: str, level: int) -> str | None:
    feature = FEATURES.get(name)
    if feature is None:
        return None if level == 0 else f"level {level} of feature {name}: there is no such feature here"
    return None if level == feature.level else f"feature {name} has level {feature.level} and keeps it"
