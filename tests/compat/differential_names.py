"""The topics that Apache Kafka and Penstock are both asked about, and ids that neither has."""

from __future__ import annotations

import uuid

T0 = 1_700_000_000_000
"""The first record's timestamp."""

DATA, COMPACT, EMPTY = "d-data", "d-compact", "d-empty"
NO_ID = uuid.UUID(int=0)
UNKNOWN_ID = uuid.UUID(int=12345)
