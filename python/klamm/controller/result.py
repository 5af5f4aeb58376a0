"""The result of a controller operation: a response, and the records that it depends on."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from klamm.protocol.errors import ErrorCode, KafkaError

T_co = TypeVar("T_co", covariant=True)

MAX_RECORDS_PER_BATCH: Final = 10_000
"""The maximum number of records of an atomic result; others are split into batches of that many."""


MAX_BATCH_SIZE: Final = 8 * 1024 * 1024 - 128 * 1024
"""The maximum size in bytes of a batch's records: a follower's fetch size without the overhead."""


class Result(NamedTuple, Generic[T_co]):
    """The response may be sent once the records, and all records before them, are committed."""

    answer: T_co
    records: Sequence[bytes] = ()
    is_atomic: bool = True
    kraft_version: int | None = None
    """A level that the quorum writes itself, before the records."""
    rest: Callable[[], "Result[T_co]"] | None = None
    """The rest of the operation, to run after the records are replayed. Its response replaces this one."""
    broker_id: int | None = None
    """The broker whose operation is incomplete: no other operation of that broker begins before."""


def check_record_count(records: Sequence[bytes]) -> None:
    """Raises POLICY_VIOLATION for a user's operation that is too large to be atomic."""
    size = sum(map(len, records))
    if len(records) > MAX_RECORDS_PER_BATCH or size > MAX_BATCH_SIZE:
        text = f"Unable to perform excessively large batch operation: {len(records)} records of {size} bytes"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
