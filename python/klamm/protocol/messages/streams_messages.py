"""The requests and responses of streams groups (KIP-1071) as our own values.

Field names are the schemas' own, so that `codec.read` and `codec.write` match them; see `group_messages`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import AUTHORIZED_OPERATIONS_OMITTED
from klamm.protocol.value import Value

STALE_TOPOLOGY: Final = 0
MISSING_SOURCE_TOPICS: Final = 1
INCORRECTLY_PARTITIONED_TOPICS: Final = 2
MISSING_INTERNAL_TOPICS: Final = 3
SHUTDOWN_APPLICATION: Final = 4
ASSIGNMENT_DELAYED: Final = 5


class KeyValue(Value):
    """A tag of a client, or a config of a topic."""

    key: str
    value: str


class InternalTopic(Value):
    """A repartition or changelog topic. 0 partitions: the topology decides; replication factor 0: the default."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: tuple[KeyValue, ...] = ()


class CopartitionGroup(Value):
    """Topics with equal partition counts, as indexes into the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class Subtopology(Value):
    """A part of a topology whose tasks are assigned independently of the other parts'."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


class Topology(Value):
    """The topology of an application, as clients send it and as the group stores it."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()


def mentioned_topics(topology: Topology) -> list[str]:
    """All topics of a topology, each once, in its order: those that a client must be allowed to describe."""
    names = (
        name
        for one in topology.subtopologies
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(topic.name for topic in (*one.repartition_source_topics, *one.state_changelog_topics)),
        )
    )
    return list(dict.fromkeys(names))


class TaskIds(Value):
    """The tasks of one subtopology; a task is an index into its input partitions."""

    subtopology_id: str
    partitions: tuple[int, ...] = ()


class TaskOffset(Value):
    """The offset of a task's changelog."""

    subtopology_id: str
    partition: int
    offset: int


class Endpoint(Value):
    """Where an instance answers interactive queries."""

    host: str
    port: int


class StreamsGroupHeartbeatRequest(Value):
    """API 88. None and -1 leave a field unchanged."""

    API_KEY: ClassVar[int] = ApiKey.STREAMS_GROUP_HEARTBEAT
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False


class Status(Value):
    """A condition of the group that members should know; the codes are constants of this module."""

    status_code: int
    status_detail: str = ""


class EndpointPartitions(Value):
    """Partitions of one topic whose state an instance has."""

    topic: str
    partitions: tuple[int, ...] = ()


class EndpointToPartitions(Value):
    """The partitions that can be queried at a member with an endpoint."""

    user_endpoint: Endpoint
    active_partitions: tuple[EndpointPartitions, ...] = ()
    standby_partitions: tuple[EndpointPartitions, ...] = ()


class StreamsGroupHeartbeatResponse(Value):
    """Response 88. Task lists of None are unchanged."""

    API_KEY: ClassVar[int] = ApiKey.STREAMS_GROUP_HEARTBEAT
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: tuple[Status, ...] | None = ()
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = None
    throttle_time_ms: int = 0


class HeartbeatResult(Value):
    """A response to a heartbeat, and the further actions of the broker."""

    response: StreamsGroupHeartbeatResponse
    topics: tuple[InternalTopic, ...] = ()
    """Internal topics that should be created."""
    heartbeat_interval_ms: int = 0
    """The interval of the group, which spaces the attempts to create topics."""


class StreamsGroupDescribeRequest(Value):
    """API 89."""

    API_KEY: ClassVar[int] = ApiKey.STREAMS_GROUP_DESCRIBE
    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedSubtopology(Value):
    """A subtopology as StreamsGroupDescribe shows it, its lists sorted."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()


class DescribedTopology(Value):
    """The topology of a group: with the partition counts in effect once all topics exist, before that as sent."""

    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...] | None = None


class DescribedTasks(Value):
    """The tasks of a member."""

    active_tasks: tuple[TaskIds, ...] = ()
    standby_tasks: tuple[TaskIds, ...] = ()
    warmup_tasks: tuple[TaskIds, ...] = ()


class DescribedStreamsMember(Value):
    """A member as StreamsGroupDescribe shows it."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] = ()
    task_offsets: tuple[TaskOffset, ...] = ()
    task_end_offsets: tuple[TaskOffset, ...] = ()
    assignment: DescribedTasks = DescribedTasks()
    target_assignment: DescribedTasks = DescribedTasks()
    is_classic: bool = False


class DescribedStreamsGroup(Value):
    """A group as StreamsGroupDescribe shows it."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: DescribedTopology | None = None
    members: tuple[DescribedStreamsMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class StreamsGroupDescribeResponse(Value):
    """Response 89."""

    API_KEY: ClassVar[int] = ApiKey.STREAMS_GROUP_DESCRIBE
    groups: tuple[DescribedStreamsGroup, ...] = ()
    throttle_time_ms: int = 0
