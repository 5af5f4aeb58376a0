"""The group APIs' requests and answers as our own values: what handlers and the group coordinator hand each other.

Field names are the schemas' own, so that `codec.read` and `codec.write` match them; a field that a version lacks keeps
the default that stands here. Times are ms, ids are 16 raw bytes, subscriptions and assignments are opaque bytes.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.value import Value

ZERO_ID: Final = bytes(16)
UNKNOWN_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_RETENTION_MS: Final = -1
FETCH_GROUPS_VERSION: Final = 8
AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)


class Caller(Value):
    """The client of a request, and the version; `client_host` is written as Kafka stores it, `/127.0.0.1`."""

    api_version: int
    client_id: str
    client_host: str


class JoinProtocol(Value):
    """A protocol (assignor) that a member supports, with its metadata for the leader."""

    name: str
    metadata: bytes


class JoinGroupRequest(Value):
    """API 11. `rebalance_timeout_ms` is already the session timeout where version 0 had none."""

    API_KEY: ClassVar[int] = ApiKey.JOIN_GROUP
    group_id: str
    session_timeout_ms: int
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_type: str = ""
    protocols: tuple[JoinProtocol, ...] = ()
    rebalance_timeout_ms: int = -1
    group_instance_id: str | None = None
    reason: str | None = None


class JoinGroupMember(Value):
    """A line of the list that the leader gets."""

    member_id: str
    group_instance_id: str | None = None
    metadata: bytes = b""


class JoinGroupResponse(Value):
    """Answer 11; `protocol_name` None goes out as null from version 7, as "" before."""

    API_KEY: ClassVar[int] = ApiKey.JOIN_GROUP
    error_code: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinGroupMember, ...] = ()
    throttle_time_ms: int = 0


class SyncAssignment(Value):
    """The assignment of the leader to one member."""

    member_id: str
    assignment: bytes


class SyncGroupRequest(Value):
    """API 14; only the leader sends assignments."""

    API_KEY: ClassVar[int] = ApiKey.SYNC_GROUP
    group_id: str
    generation_id: int
    member_id: str
    assignments: tuple[SyncAssignment, ...] = ()
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncGroupResponse(Value):
    """Answer 14."""

    API_KEY: ClassVar[int] = ApiKey.SYNC_GROUP
    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    throttle_time_ms: int = 0


class HeartbeatRequest(Value):
    """API 12."""

    API_KEY: ClassVar[int] = ApiKey.HEARTBEAT
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResponse(Value):
    """Answer 12."""

    API_KEY: ClassVar[int] = ApiKey.HEARTBEAT
    error_code: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0


class LeavingMember(Value):
    """A member that leaves, or is removed by an admin through its instance id alone."""

    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(Value):
    """API 13. Below version 3 `member_id` leaves, and `groups.read_leave_group` puts it into the list."""

    API_KEY: ClassVar[int] = ApiKey.LEAVE_GROUP
    group_id: str
    members: tuple[LeavingMember, ...] = ()
    member_id: str = UNKNOWN_MEMBER_ID


class LeaveMemberResponse(Value):
    """How one member's leaving went."""

    member_id: str
    group_instance_id: str | None = None
    error_code: ErrorCode = ErrorCode.NONE


class LeaveGroupResponse(Value):
    """Answer 13; versions 0 to 2 show the one member's error at the top."""

    API_KEY: ClassVar[int] = ApiKey.LEAVE_GROUP
    error_code: ErrorCode = ErrorCode.NONE
    members: tuple[LeaveMemberResponse, ...] = ()
    throttle_time_ms: int = 0


class CommitPartition(Value):
    """An offset to commit; `committed_metadata` null counts as ""."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = NO_LEADER_EPOCH
    committed_metadata: str | None = None


class CommitTopic(Value):
    """A topic of an OffsetCommit, by name or, from version 10, by id."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partitions: tuple[CommitPartition, ...] = ()


class OffsetCommitRequest(Value):
    """API 8. The generation is the member epoch where the consumer protocol is used."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_COMMIT
    group_id: str
    topics: tuple[CommitTopic, ...] = ()
    generation_id_or_member_epoch: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    retention_time_ms: int = NO_RETENTION_MS


class CommittedPartition(Value):
    """How one partition's commit went."""

    partition_index: int
    error_code: int = ErrorCode.NONE


class CommittedTopic(Value):
    """A topic of an OffsetCommit answer."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partitions: tuple[CommittedPartition, ...] = ()


class OffsetCommitResponse(Value):
    """Answer 8."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_COMMIT
    topics: tuple[CommittedTopic, ...] = ()
    throttle_time_ms: int = 0


class TxnCommitTopic(Value):
    """A topic of a TxnOffsetCommit."""

    name: str
    partitions: tuple[CommitPartition, ...] = ()


class TxnOffsetCommitRequest(Value):
    """API 28."""

    API_KEY: ClassVar[int] = ApiKey.TXN_OFFSET_COMMIT
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[TxnCommitTopic, ...] = ()
    generation_id: int = NO_GENERATION
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None


class TxnCommittedTopic(Value):
    """A topic of a TxnOffsetCommit answer."""

    name: str
    partitions: tuple[CommittedPartition, ...] = ()


class TxnOffsetCommitResponse(Value):
    """Answer 28."""

    API_KEY: ClassVar[int] = ApiKey.TXN_OFFSET_COMMIT
    topics: tuple[TxnCommittedTopic, ...] = ()
    throttle_time_ms: int = 0


class FetchTopic(Value):
    """Partitions whose committed offsets are requested."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partition_indexes: tuple[int, ...] = ()


class FetchGroup(Value):
    """A group of an OffsetFetch; `topics` None asks for all that it has."""

    group_id: str
    topics: tuple[FetchTopic, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


class OffsetFetchRequest(Value):
    """API 9. Below version 8 it is about `group_id` and `topics`; `all_groups` says it one way."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_FETCH
    groups: tuple[FetchGroup, ...] = ()
    require_stable: bool = False
    group_id: str = ""
    topics: tuple[FetchTopic, ...] | None = ()

    def all_groups(self, version: int) -> tuple[FetchGroup, ...]:
        """The groups that are asked about."""
        return self.groups if version >= FETCH_GROUPS_VERSION else (FetchGroup(self.group_id, self.topics),)


class FetchedPartition(Value):
    """A committed offset, or -1, -1, "" for none."""

    partition_index: int
    committed_offset: int = NO_OFFSET
    committed_leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error_code: int = ErrorCode.NONE


class FetchedTopic(Value):
    """A topic of an OffsetFetch answer."""

    name: str = ""
    topic_id: bytes = ZERO_ID
    partitions: tuple[FetchedPartition, ...] = ()


class FetchedGroup(Value):
    """A group of an OffsetFetch answer; with an error its topics are for version 1, which has errors only there."""

    group_id: str
    topics: tuple[FetchedTopic, ...] = ()
    error_code: int = ErrorCode.NONE


class OffsetFetchResponse(Value):
    """Answer 9; below version 8 `topics` and `error_code` are those of the one group."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_FETCH
    groups: tuple[FetchedGroup, ...] = ()
    topics: tuple[FetchedTopic, ...] = ()
    error_code: int = ErrorCode.NONE
    throttle_time_ms: int = 0


class DescribedMember(Value):
    """A member as DescribeGroups shows it; metadata is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Value):
    """A group as DescribeGroups shows it."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class DescribeGroupsRequest(Value):
    """API 15."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_GROUPS
    groups: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribeGroupsResponse(Value):
    """Answer 15."""

    API_KEY: ClassVar[int] = ApiKey.DESCRIBE_GROUPS
    groups: tuple[DescribedGroup, ...] = ()
    throttle_time_ms: int = 0


class ListGroupsRequest(Value):
    """API 16; empty filters let everything through."""

    API_KEY: ClassVar[int] = ApiKey.LIST_GROUPS
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(Value):
    """A line of ListGroups."""

    group_id: str
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(Value):
    """Answer 16."""

    API_KEY: ClassVar[int] = ApiKey.LIST_GROUPS
    error_code: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()
    throttle_time_ms: int = 0


class DeleteGroupsRequest(Value):
    """API 42."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_GROUPS
    groups_names: tuple[str, ...] = ()


class DeletedGroup(Value):
    """How the deletion of one group went."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE


class DeleteGroupsResponse(Value):
    """Answer 42."""

    API_KEY: ClassVar[int] = ApiKey.DELETE_GROUPS
    results: tuple[DeletedGroup, ...] = ()
    throttle_time_ms: int = 0


class DeletePartition(Value):
    """A partition whose committed offset is to be deleted."""

    partition_index: int


class DeleteTopic(Value):
    """Partitions of a topic whose committed offsets are to be deleted."""

    name: str
    partitions: tuple[DeletePartition, ...] = ()


class OffsetDeleteRequest(Value):
    """API 47."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_DELETE
    group_id: str
    topics: tuple[DeleteTopic, ...] = ()


class DeletedPartition(Value):
    """How one offset's deletion went."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE


class DeletedTopic(Value):
    """A topic of an OffsetDelete answer."""

    name: str
    partitions: tuple[DeletedPartition, ...] = ()


class OffsetDeleteResponse(Value):
    """Answer 47."""

    API_KEY: ClassVar[int] = ApiKey.OFFSET_DELETE
    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[DeletedTopic, ...] = ()
    throttle_time_ms: int = 0
