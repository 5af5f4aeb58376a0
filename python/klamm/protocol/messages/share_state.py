"""The requests of the share coordinator (KIP-932) and their answers as our own values.

Field names are the schemas' own, so that `codec.read` and `codec.write` match them; a field that a version lacks keeps
its default. Every request names a share group, and partitions by topic id; every partition has a result of its own, and
there is no error for the whole. Ids are 16 raw bytes.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.uuids import parse_uuid, uuid_text
from klamm.protocol.value import Value

NO_EPOCH: Final = -1
"""Of a leader or a state: not checked."""
NO_START_OFFSET: Final = -1
"""Not known yet; in a Write: unchanged."""
NO_COUNT: Final = -1
"""A DeliveryCompleteCount that is not known."""
_INT32: Final = range(-(1 << 31), 1 << 31)


class SharePartitionKey(NamedTuple):
    """A partition as one share group consumes it (Kafka's `SharePartitionKey`)."""

    group_id: str
    topic_id: bytes
    partition: int

    def coordinator_key(self) -> str:
        """The key of FindCoordinator, whose hash places it in `__share_group_state`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """From the key of a FindCoordinator, read from the right: a group id may contain colons.

        As Kafka's, it does without colons at the end. Raises ValueError.
        """
        group_id, topic_id, partition = text.rstrip(":").rsplit(":", 2)
        if not group_id.strip() or not partition.removeprefix("-").removeprefix("+").isdecimal():
            raise ValueError(f"not a key of a share partition: {text!r}")
        if int(partition) not in _INT32:
            raise ValueError(f"not a partition: {partition}")
        return cls(group_id, parse_uuid(topic_id), int(partition))


class StateBatch(NamedTuple):
    """The offsets `[first_offset, last_offset]`: 0 available, 2 acknowledged, 4 archived, and how often delivered."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class StateBatchMessage(Value):
    """A `StateBatch` on the wire."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def batches_of(messages: tuple[StateBatchMessage, ...]) -> tuple[StateBatch, ...]:
    """The batches of a message."""
    return tuple(StateBatch(*(getattr(one, name) for name in StateBatch._fields)) for one in messages)


def batch_messages(batches: tuple[StateBatch, ...]) -> tuple[StateBatchMessage, ...]:
    """Batches as a message has them."""
    return tuple(StateBatchMessage(*batch) for batch in batches)


class InitializedPartition(Value):
    """A partition whose state begins, with the start offset -1 if its first fetch determines it."""

    partition: int
    state_epoch: int = NO_EPOCH
    start_offset: int = NO_START_OFFSET


class InitializedTopic(Value):
    """Partitions of a topic."""

    topic_id: bytes
    partitions: tuple[InitializedPartition, ...] = ()


class InitializeStateRequest(Value):
    """API 83."""

    API_KEY: ClassVar[int] = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    group_id: str
    topics: tuple[InitializedTopic, ...] = ()


class PartitionError(Value):
    """The result of a partition of an Initialize, a Write or a Delete."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class TopicErrors(Value):
    """The results of a topic."""

    topic_id: bytes
    partitions: tuple[PartitionError, ...] = ()


class InitializeStateResponse(Value):
    """Answer 83."""

    API_KEY: ClassVar[int] = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    results: tuple[TopicErrors, ...] = ()


class ReadPartition(Value):
    """A partition whose state is read by the leader of this epoch."""

    partition: int
    leader_epoch: int = NO_EPOCH


class ReadTopic(Value):
    """Partitions of a topic."""

    topic_id: bytes
    partitions: tuple[ReadPartition, ...] = ()


class ReadStateRequest(Value):
    """API 84."""

    API_KEY: ClassVar[int] = ApiKey.READ_SHARE_GROUP_STATE
    group_id: str
    topics: tuple[ReadTopic, ...] = ()


class PartitionState(Value):
    """The state of a partition, or why it is not known."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: tuple[StateBatchMessage, ...] = ()


class TopicStates(Value):
    """The states of a topic."""

    topic_id: bytes
    partitions: tuple[PartitionState, ...] = ()


class ReadStateResponse(Value):
    """Answer 84."""

    API_KEY: ClassVar[int] = ApiKey.READ_SHARE_GROUP_STATE
    results: tuple[TopicStates, ...] = ()


class WrittenPartition(Value):
    """Changes of a partition's state by the leader of this epoch."""

    partition: int
    state_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COUNT
    state_batches: tuple[StateBatchMessage, ...] = ()


class WrittenTopic(Value):
    """Partitions of a topic."""

    topic_id: bytes
    partitions: tuple[WrittenPartition, ...] = ()


class WriteStateRequest(Value):
    """API 85."""

    API_KEY: ClassVar[int] = ApiKey.WRITE_SHARE_GROUP_STATE
    group_id: str
    topics: tuple[WrittenTopic, ...] = ()


class WriteStateResponse(Value):
    """Answer 85."""

    API_KEY: ClassVar[int] = ApiKey.WRITE_SHARE_GROUP_STATE
    results: tuple[TopicErrors, ...] = ()


class DeletedPartition(Value):
    """A partition whose state is deleted."""

    partition: int


class DeletedTopic(Value):
    """Partitions of a topic."""

    topic_id: bytes
    partitions: tuple[DeletedPartition, ...] = ()


class DeleteStateRequest(Value):
    """API 86."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_SHARE_GROUP_STATE
    group_id: str
    topics: tuple[DeletedTopic, ...] = ()


class DeleteStateResponse(Value):
    """Answer 86."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_SHARE_GROUP_STATE
    results: tuple[TopicErrors, ...] = ()


class ReadSummaryRequest(Value):
    """API 87."""

    API_KEY: ClassVar[int] = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    group_id: str
    topics: tuple[ReadTopic, ...] = ()


class PartitionSummary(Value):
    """The state of a partition without its batches, or why it is not known."""

    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = NO_COUNT


class TopicSummaries(Value):
    """The summaries of a topic."""

    topic_id: bytes
    partitions: tuple[PartitionSummary, ...] = ()


class ReadSummaryResponse(Value):
    """Answer 87."""

    API_KEY: ClassVar[int] = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    results: tuple[TopicSummaries, ...] = ()
