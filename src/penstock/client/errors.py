"""What a caller of a cluster has to expect. Each text is one sentence that names the broker, and the partition if there is one."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from penstock.base.errors import PenstockError


class ClientError(PenstockError):
    """Root of what the client raises by itself."""


class UnreachableError(ClientError):
    """No connection, a connection that broke, or no answer in time. Asking again may help."""


class AuthenticationError(ClientError):
    """One side does not believe the other who it is. Asking again will not help."""


class UnsupportedByBrokerError(ClientError):
    """The broker serves no version of an API that this client speaks."""


class UnknownTopicError(ClientError):
    """A topic or a partition that the cluster does not have, or does not show us."""


class UnfinishedError(ClientError):
    """A change that a broker has begun, and may yet finish. Asking again could be refused for that."""


class AnswerError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, where: str, code: int, *, detail: str = "") -> None:
        self.code = code
        self.name = code_name(code)
        super().__init__(f"{where}: {self.name}{f' ({detail})' if detail else ''}")

    @property
    def is_retriable(self) -> bool:
        return is_retriable(self.code)


class FetchOutOfRangeError(ClientError):
    """The offset asked for is not, or no longer, in the log; the range that is there is named."""

    def __init__(self, where: str, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(f"{where}: offset {offset} is outside the log's range [{log_start_offset}, {end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class NoProgressError(ClientError):
    """A partition gave nothing for too long where records should be."""


def code_name(code: int) -> str:
    """Kafka's name of an error code, as its documents print it."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error code {code}"


def is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
