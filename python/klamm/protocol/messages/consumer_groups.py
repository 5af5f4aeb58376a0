"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69) as values.

Field names are those of the schemas. Times are ms, topic ids are 16 raw bytes.
"""

from __future__ import annotations

from typing import ClassVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import AUTHORIZED_OPERATIONS_OMITTED
from klamm.protocol.value import Value

UNCHANGED_MS = -1
"""A rebalance timeout that did not change since the last heartbeat."""


class OwnedTopic(Value):
    """Partitions of a topic that a member owns, or will own."""

    topic_id: bytes
    partitions: tuple[int, ...] = ()


class ConsumerGroupHeartbeatRequest(Value):
    """API 68. None, and -1 for the timeout, mean: as in the last heartbeat. Version 0 has no regular expression."""

    API_KEY: ClassVar[int] = ApiKey.CONSUMER_GROUP_HEARTBEAT
    group_id: str
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[OwnedTopic, ...] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the request has all that a member sends when it joins, or after an error."""
        has_subscription = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED_MS and has_subscription and self.topic_partitions is not None


class HeartbeatAssignment(Value):
    """The partitions that a member may use now."""

    topic_partitions: tuple[OwnedTopic, ...] = ()


class ConsumerGroupHeartbeatResponse(Value):
    """Answer 68. An assignment of None: it did not change."""

    API_KEY: ClassVar[int] = ApiKey.CONSUMER_GROUP_HEARTBEAT
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: HeartbeatAssignment | None = None
    throttle_time_ms: int = 0


class ConsumerGroupDescribeRequest(Value):
    """API 69."""

    API_KEY: ClassVar[int] = ApiKey.CONSUMER_GROUP_DESCRIBE
    group_ids: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedPartitions(Value):
    """Partitions of a topic in an answer of ConsumerGroupDescribe."""

    topic_id: bytes
    topic_name: str
    partitions: tuple[int, ...] = ()


class DescribedAssignment(Value):
    """The current or target assignment of a member."""

    topic_partitions: tuple[DescribedPartitions, ...] = ()


class DescribedConsumer(Value):
    """A member of a consumer group.

    From version 1 on, `member_type` is 0 for the classic protocol and 1 for the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    assignment: DescribedAssignment = DescribedAssignment()
    target_assignment: DescribedAssignment = DescribedAssignment()
    member_type: int = -1


class DescribedConsumerGroup(Value):
    """A consumer group, or why there is none."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class ConsumerGroupDescribeResponse(Value):
    """Answer 69."""

    API_KEY: ClassVar[int] = ApiKey.CONSUMER_GROUP_DESCRIBE
    groups: tuple[DescribedConsumerGroup, ...] = ()
    throttle_time_ms: int = 0
