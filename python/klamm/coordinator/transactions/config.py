"""The settings of a transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TIMEOUT_OF_TWO_PHASES_MS: Final = 2**31 - 1
"""The timeout of a transaction with two-phase commit (KIP-939): it never passes."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Under Kafka's names, where it has them; times in ms."""

    transaction_max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    timeout_check_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiry_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    two_phase_commit_enable: bool = False
    request_timeout_ms: int = 30_000
    """request.timeout.ms, for appends that belong to no transaction"""
    batch_bytes_max: int = 1_048_588
