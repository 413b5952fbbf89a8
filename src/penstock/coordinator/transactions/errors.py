"""What a transaction coordinator may refuse, beyond what every coordinator does."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class InvalidProducerIdMappingError(PenstockError):
    """The transactional id belongs to another producer id, or to none (INVALID_PRODUCER_ID_MAPPING)."""


class ProducerFencedError(PenstockError):
    """A newer producer with the same transactional id took over (PRODUCER_FENCED)."""


class ConcurrentTransactionsError(PenstockError):
    """A step of this transactional id is under way; ask again (CONCURRENT_TRANSACTIONS)."""


class InvalidTransactionTimeoutError(PenstockError):
    """A transaction may not stay open that long (INVALID_TRANSACTION_TIMEOUT)."""


class TransactionalIdNotFoundError(PenstockError):
    """Nobody used this transactional id lately (TRANSACTIONAL_ID_NOT_FOUND)."""


class TransactionAbortableError(PenstockError):
    """The write is not part of the transaction, which can only be aborted now (TRANSACTION_ABORTABLE, KIP-890)."""
