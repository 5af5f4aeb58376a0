"""The APIs of share sessions as values, for klamm as a client: ShareFetch (78) and ShareAcknowledge (79).

Field names are those of the schemas. Times are ms, topic ids are 16 raw bytes, offsets of a range are both included.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value


class AcknowledgeType(enum.IntEnum):
    """How a member acknowledges a record (KIP-932); a gap is an offset without a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class AcquireMode(enum.IntEnum):
    """How many records a fetch acquires: whole batches, or never more than `max_records` (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class AcknowledgementBatch(Value):
    """One type for all offsets of a range, or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...] = ()


class SharePartition(Value):
    """A partition to fetch, with acknowledgements."""

    partition_index: int
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()


class ShareTopic(Value):
    """Partitions of a topic."""

    topic_id: bytes
    partitions: tuple[SharePartition, ...] = ()


class ForgottenShareTopic(Value):
    """Partitions that leave the session."""

    topic_id: bytes
    partitions: tuple[int, ...] = ()


class ShareFetchRequest(Value):
    """API 78. A session epoch of 0 opens a session; later requests name what changes in it."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_FETCH
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = AcquireMode.BATCH_OPTIMIZED
    is_renew_ack: bool = False
    topics: tuple[ShareTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenShareTopic, ...] = ()


class AcquiredRecords(Value):
    """Offsets that the member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int


class ShareFetchData(Value):
    """A partition in an answer. `records` are whole batches, of which only acquired offsets are the member's."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acknowledge_error_code: int = ErrorCode.NONE
    acknowledge_error_message: str | None = None
    records: bytes | None = None
    acquired_records: tuple[AcquiredRecords, ...] = ()


class ShareFetchTopicData(Value):
    """Partitions of a topic in an answer."""

    topic_id: bytes
    partitions: tuple[ShareFetchData, ...] = ()


class ShareFetchResponse(Value):
    """Answer 78."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_FETCH
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[ShareFetchTopicData, ...] = ()
    throttle_time_ms: int = 0


class ShareAcknowledgeRequest(Value):
    """API 79. A session epoch of -1 closes the session, which releases what was not acknowledged."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_ACKNOWLEDGE
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool = False
    topics: tuple[ShareTopic, ...] = ()


class AcknowledgedPartition(Value):
    """The result of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class AcknowledgedTopic(Value):
    """The results of a topic."""

    topic_id: bytes
    partitions: tuple[AcknowledgedPartition, ...] = ()


class ShareAcknowledgeResponse(Value):
    """Answer 79."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_ACKNOWLEDGE
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: tuple[AcknowledgedTopic, ...] = ()
    throttle_time_ms: int = 0
