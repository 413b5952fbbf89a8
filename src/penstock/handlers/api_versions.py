"""ApiVersions (key 18), versions 0-4, flexible from 3 (its response header never is).

Behaviour: lists what the registry serves, and nothing else. An unknown version is answered in version 0 with
    UNSUPPORTED_VERSION and the list, so that the client can ask again (KIP-511); a client that names itself badly gets
    INVALID_REQUEST.
Versions: 1 throttle time; 3 flexible, the client's software (KIP-511), features (KIP-584); 4 features with minimum 0.
    The feature `transaction.version` is finalised at 2, by which Java's clients use transactions V2 (KIP-890).
Differs from Kafka: the features are Penstock's own (`handlers/features.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from penstock.handlers.features import FEATURES
from penstock.protocol.schemas import Shape, codec

if TYPE_CHECKING:
    from penstock.handlers.api import Api, Context, Handler

KEY = 18
_LOWEST_LEVEL_0_FROM = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def api_versions_handler(apis: Mapping[int, Api]) -> Handler:
    """The handler for a registry, which lists itself."""

    def handle(request: Any, context: Context) -> Any:
        response = context.response
        software = (getattr(request, "client_software_name", None), getattr(request, "client_software_version", None))
        if any(name is not None and not _SOFTWARE.match(name) for name in software):
            return response.make(error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=timedelta())
        return _answer(response, apis, ErrorCode.none, context.version)

    return handle


def _answer(response: Shape, apis: Mapping[int, Api], error_code: ErrorCode, version: int) -> Any:
    keys = tuple(
        response.api_keys.make(
            api_key=api.key,
            min_version=api.low if api.advertised_low is None else api.advertised_low,
            max_version=api.high,
        )
        for _, api in sorted(apis.items())
    )
    return response.make(
        error_code=error_code,
        api_keys=keys,
        throttle_time=timedelta(),
        supported_features=_supported(response, version),
        finalized_features_epoch=1,
        finalized_features=tuple(
            response.finalized_features.make(
                name=name, max_version_level=feature.level, min_version_level=feature.level
            )
            for name, feature in sorted(FEATURES.items())
            if feature.level > 0
        ),
    )


def _supported(response: Shape, version: int) -> tuple[Any, ...]:
    """Clients below version 4 do not expect a lowest level of 0, and are not told of such features."""
    return tuple(
        response.supported_features.make(name=name, min_version=feature.low, max_version=feature.high)
        for name, feature in sorted(FEATURES.items())
        if feature.low > 0 or version >= _LOWEST_LEVEL_0_FROM
    )


def unsupported_version_answer(apis: Mapping[int, Api]) -> bytes:
    """The body for a version of ApiVersions that nobody here knows: version 0, with the list of what is known."""
    version_0 = codec(KEY, 0)
    return version_0.encode(_answer(version_0.response, apis, ErrorCode.unsupported_version, 0))
