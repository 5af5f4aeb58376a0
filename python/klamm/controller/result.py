"""What an operation of the controller comes to: an answer, and the records that make it true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from klamm.protocol.errors import ErrorCode, KafkaError

T_co = TypeVar("T_co", covariant=True)

MAX_RECORDS_PER_BATCH: Final = 10_000
"""An atomic result has at most so many records; another is split into batches of so many."""


MAX_BATCH_SIZE: Final = 8 * 1024 * 1024 - 128 * 1024
"""The records of a batch have at most so many bytes: what a follower fetches at once, less what surrounds them."""


class Result(NamedTuple, Generic[T_co]):
    """The answer may be given once the records, and all before them, are committed."""

    answer: T_co
    records: Sequence[bytes] = ()
    is_atomic: bool = True
    kraft_version: int | None = None
    """A level that the quorum writes itself, before the records."""
    rest: Callable[[], Result[T_co]] | None = None
    """What is left to do, once the records are replayed and others had their turn. Its answer counts, not this one."""
    broker_id: int | None = None
    """Whose coming or going it is that is not done yet: nothing else of that broker is begun before."""


def check_record_count(records: Sequence[bytes]) -> None:
    """Raises POLICY_VIOLATION for a user's operation that is too large to be atomic."""
    size = sum(map(len, records))
    if len(records) > MAX_RECORDS_PER_BATCH or size > MAX_BATCH_SIZE:
        text = f"Unable to perform excessively large batch operation: {len(records)} records of {size} bytes"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
