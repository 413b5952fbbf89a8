"""What a client's program does around its client: a request a line on stdin, an answer a line on stdout, both JSON.

A request names what to `do` and its arguments; the answer holds `ok`, or `error` with the kind of the exception and its text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def value_of(prefix: str, number: int) -> str:
    """A record's value, as every client's program writes it."""
    return f"{prefix}-{number}-{'x' * 50}"


def serve(client: object) -> None:
    """Answers each request with the client's method of that name, until stdin ends."""
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        method: Callable[..., Any] = getattr(client, request.pop("do"))
        try:
            answer = {"ok": method(**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
