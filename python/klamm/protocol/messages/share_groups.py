"""The APIs of share groups at the group coordinator as values.

ShareGroupHeartbeat (76), ShareGroupDescribe (77), and the offsets of share groups (90 to 92).

Field names are those of the schemas. Times are ms, topic ids are 16 raw bytes.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import AUTHORIZED_OPERATIONS_OMITTED, ZERO_ID
from klamm.protocol.value import Value

NO_START_OFFSET: Final = -1
NO_LAG: Final = -1


class ShareGroupHeartbeatRequest(Value):
    """API 76. None means: as in the last heartbeat."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_GROUP_HEARTBEAT
    group_id: str
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None


class AssignedTopic(Value):
    """Partitions of a topic that a member reads."""

    topic_id: bytes
    partitions: tuple[int, ...] = ()


class ShareAssignment(Value):
    """The partitions that a member reads from now on."""

    topic_partitions: tuple[AssignedTopic, ...] = ()


class ShareGroupHeartbeatResponse(Value):
    """Answer 76. An assignment of None: it did not change."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_GROUP_HEARTBEAT
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ShareAssignment | None = None
    throttle_time_ms: int = 0


class ShareGroupDescribeRequest(Value):
    """API 77."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_GROUP_DESCRIBE
    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedSharePartitions(Value):
    """Partitions of a topic in an answer of ShareGroupDescribe."""

    topic_id: bytes
    topic_name: str
    partitions: tuple[int, ...] = ()


class DescribedShareAssignment(Value):
    """What a member reads."""

    topic_partitions: tuple[DescribedSharePartitions, ...] = ()


class DescribedShareMember(Value):
    """A member of a share group."""

    member_id: str
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    assignment: DescribedShareAssignment = DescribedShareAssignment()


class DescribedShareGroup(Value):
    """A share group, or why there is none."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedShareMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class ShareGroupDescribeResponse(Value):
    """Answer 77."""

    API_KEY: ClassVar[int] = ApiKey.SHARE_GROUP_DESCRIBE
    groups: tuple[DescribedShareGroup, ...] = ()
    throttle_time_ms: int = 0


class OffsetsTopic(Value):
    """Partitions of a topic whose start offsets are requested."""

    topic_name: str
    partitions: tuple[int, ...] = ()


class OffsetsGroup(Value):
    """A group whose start offsets are requested; topics of None: all of its topics."""

    group_id: str
    topics: tuple[OffsetsTopic, ...] | None = None


class DescribeShareGroupOffsetsRequest(Value):
    """API 90."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    groups: tuple[OffsetsGroup, ...] = ()


class DescribedShareOffset(Value):
    """The start offset of a partition, -1 if there is none. From version 1 on, the lag, -1 if it is not known."""

    partition_index: int
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = NO_LAG
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DescribedOffsetsTopic(Value):
    """The start offsets of a topic."""

    topic_name: str
    topic_id: bytes = ZERO_ID
    partitions: tuple[DescribedShareOffset, ...] = ()


class DescribedOffsetsGroup(Value):
    """The start offsets of a group."""

    group_id: str
    topics: tuple[DescribedOffsetsTopic, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Value):
    """Answer 90."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
    groups: tuple[DescribedOffsetsGroup, ...] = ()
    throttle_time_ms: int = 0


class AlteredPartition(Value):
    """A partition that the group will read from an offset on."""

    partition_index: int
    start_offset: int


class AlteredTopic(Value):
    """Partitions of a topic."""

    topic_name: str
    partitions: tuple[AlteredPartition, ...] = ()


class AlterShareGroupOffsetsRequest(Value):
    """API 91."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    group_id: str
    topics: tuple[AlteredTopic, ...] = ()


class AlteredPartitionResult(Value):
    """The result of a partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class AlteredTopicResult(Value):
    """The results of a topic."""

    topic_name: str
    topic_id: bytes = ZERO_ID
    partitions: tuple[AlteredPartitionResult, ...] = ()


class AlterShareGroupOffsetsResponse(Value):
    """Answer 91."""

    API_KEY: ClassVar[int] = ApiKey.ALTER_SHARE_GROUP_OFFSETS
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[AlteredTopicResult, ...] = ()
    throttle_time_ms: int = 0


class DeletedOffsetsTopic(Value):
    """A topic whose offsets are deleted from the group."""

    topic_name: str


class DeleteShareGroupOffsetsRequest(Value):
    """API 92."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    group_id: str
    topics: tuple[DeletedOffsetsTopic, ...] = ()


class DeletedTopicResult(Value):
    """The result of a topic."""

    topic_name: str
    topic_id: bytes = ZERO_ID
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Value):
    """Answer 92."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_SHARE_GROUP_OFFSETS
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[DeletedTopicResult, ...] = ()
    throttle_time_ms: int = 0
