"""SaslHandshake (key 17), versions 0-1, never flexible, and SaslAuthenticate (key 36), versions 0-2, flexible from 2.

Behaviour: a PLAINTEXT listener has nobody to authenticate: ILLEGAL_SASL_STATE, as Kafka answers there.
Versions: 17: 1 says that SaslAuthenticate follows; 36: 1 session lifetime; 2 flexible.
Differs from Kafka: nothing known.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.handlers.api import Context


def handle_sasl_handshake(_request: Any, context: Context) -> Any:
    return context.response.make(error_code=ErrorCode.illegal_sasl_state, mechanisms=())


def handle_sasl_authenticate(_request: Any, context: Context) -> Any:
    return context.response.make(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="nobody has to authenticate on this listener",
        auth_bytes=b"",
        session_lifetime=timedelta(),
    )
