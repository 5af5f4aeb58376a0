"""The records that a controller writes on activation (`ActivationRecordsGenerator`): the bootstrap records when the log
is empty, and the end of a metadata transaction that its predecessor left open (KIP-868)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm._engine.metadata import Image
from klamm.controller.result import MAX_RECORDS_PER_BATCH, Result
from klamm.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_TRANSACTION_LEVEL
from klamm.protocol.generated.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    encode,
)
from klamm.protocol.resource_types import ResourceType

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


class UnfinishedTransactionError(Exception):
    """The log ends within a metadata transaction, but its metadata.version does not support transactions."""


def activation_records(image: Image, bootstrap: Sequence[bytes], static_min_insync_replicas: int) -> Result[None]:
    """The records to append first. `bootstrap`: those of `bootstrap.checkpoint`; `image`: the content of the log.

    Raises UnfinishedTransactionError for a log that no controller could have written.
    """
    if image.stable.metadata_version is None:
        return _records_for_empty_log(image, bootstrap, static_min_insync_replicas)
    if not image.in_transaction:
        return Result(None)
    _check_transactions(image.stable.metadata_version)
    return Result(None, [_encoded(AbortTransactionRecord(reason="Controller failover"))])


def _records_for_empty_log(image: Image, bootstrap: Sequence[bytes], static_min_insync_replicas: int) -> Result[None]:
    booted = Image().apply(list(bootstrap))
    level = booted.metadata_version
    assert level is not None, "the bootstrap records hold no metadata.version"
    records: list[bytes] = []
    if image.in_transaction:
        _check_transactions(level)
        records.append(_encoded(AbortTransactionRecord(reason="Controller failover")))
    # The format's records are one transaction where there are transactions, else one batch.
    has_transactions = level >= METADATA_TRANSACTION_LEVEL
    if has_transactions:
        records.append(_encoded(BeginTransactionRecord(name="Bootstrap records")))
    records += bootstrap
    if booted.feature(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0:
        records.append(_encoded(min_insync_replicas_record("", str(static_min_insync_replicas))))
    if has_transactions:
        records.append(_encoded(EndTransactionRecord()))
    assert has_transactions or len(records) <= MAX_RECORDS_PER_BATCH, f"{len(records)} bootstrap records are too many"
    return Result(None, records, is_atomic=not has_transactions)


def min_insync_replicas_record(node: str, value: str | None) -> ConfigRecord:
    """Eligible leader replicas need this key set for the whole cluster, and for no node alone (KIP-966)."""
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name=node, name=MIN_INSYNC_REPLICAS, value=value)


def _check_transactions(level: int) -> None:
    if level < METADATA_TRANSACTION_LEVEL:
        raise UnfinishedTransactionError(
            f"The metadata log ends within a transaction, but metadata.version {level} has no transactions. "
            "The log is damaged; restore it from another voter or a snapshot."
        )


def _encoded(record: MetadataRecord) -> bytes:
    return encode(record, 0)
