"""Operating errors: what the world can do to us. One root; the wire maps each class to one code in one total table.

Programmer errors are assertions, never these.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root of every operating error. Its text is one sentence for a person."""


# The bytes a client or a leader sent.
class CorruptRecordError(PenstockError):
    """CRC, size, magic or structure of a batch is wrong (CORRUPT_MESSAGE)."""


class InvalidRecordError(PenstockError):
    """A well-formed batch that this topic refuses (INVALID_RECORD), with the index of each bad record (KIP-467)."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors
        self.log_start_offset = -1
        """Of the log that refused some of its records: clients are told then, as by Kafka."""


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp is too far from the broker's clock (INVALID_TIMESTAMP)."""


class MessageTooLargeError(PenstockError):
    """A batch is larger than `max.message.bytes` (MESSAGE_TOO_LARGE)."""


class RecordListTooLargeError(PenstockError):
    """A set of batches is larger than a segment may be (RECORD_LIST_TOO_LARGE)."""


class UnsupportedCompressionTypeError(PenstockError):
    """The codec bits name no codec (UNSUPPORTED_COMPRESSION_TYPE)."""


class UnsupportedForMessageFormatError(PenstockError):
    """Record formats 0 and 1 are not kept here (UNSUPPORTED_FOR_MESSAGE_FORMAT)."""


# The state of the log and its producers.
class OffsetOutOfRangeError(PenstockError):
    """The offset lies outside the log (OFFSET_OUT_OF_RANGE); the valid range is named."""

    def __init__(self, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside the log's range [{log_start_offset}, {end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class OffsetsOutOfOrderError(PenstockError):
    """A follower's batches do not rise, or start below the log's end."""


class OutOfOrderSequenceError(PenstockError):
    """A producer skipped a sequence number (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidProducerEpochError(PenstockError):
    """A producer was fenced by a newer epoch (INVALID_PRODUCER_EPOCH)."""


class InvalidTxnStateError(PenstockError):
    """A transactional write or marker does not fit the producer's open transaction (INVALID_TXN_STATE)."""


class TransactionCoordinatorFencedError(PenstockError):
    """A marker carries an older coordinator epoch (TRANSACTION_COORDINATOR_FENCED)."""


# The disk.
class StorageError(PenstockError):
    """The disk failed; the log directory goes offline (KAFKA_STORAGE_ERROR)."""


class LogDirectoryError(PenstockError):
    """A log directory cannot be used: foreign, unreadable, inconsistent. Says which and what to do."""


class DirectoryLockedError(LogDirectoryError):
    """Another process holds the directory's `.lock`."""


class CorruptFileError(PenstockError):
    """A file of ours fails its own checks; `path` names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


# What a person typed.
class ConfigError(PenstockError):
    """A configuration value is not valid (INVALID_CONFIG)."""
