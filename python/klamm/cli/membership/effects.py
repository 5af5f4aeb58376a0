"""The effects of a member, carried out in order by its driver, which reports the result of each by the named event."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from klamm.protocol.messages.group_messages import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from klamm.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from klamm.protocol.topic_partition import TopicPartition
from klamm.protocol.value import Value


class FindCoordinator(Value):
    """Find the group's coordinator, then call `on_coordinator_found`."""


class SendJoin(Value):
    """Send JoinGroup and wait up to `timeout_ms` for the response, then call `on_joined`."""

    request: JoinGroupRequest
    timeout_ms: int


class CountPartitions(Value):
    """Read the number of partitions of each topic, then call `on_counted`."""

    topics: frozenset[str]


class SendSync(Value):
    """Send SyncGroup, then call `on_synced`."""

    request: SyncGroupRequest


class SendHeartbeat(Value):
    """Send Heartbeat, then call `on_heartbeat`."""

    request: HeartbeatRequest


class SendConsumerHeartbeat(Value):
    """Send ConsumerGroupHeartbeat, then call `on_consumer_heartbeat`."""

    request: ConsumerGroupHeartbeatRequest


class SendShareHeartbeat(Value):
    """Send ShareGroupHeartbeat, then call `on_share_heartbeat`."""

    request: ShareGroupHeartbeatRequest


class NameTopics(Value):
    """Read the ids of these topics, then call `on_named`."""

    topics: frozenset[str]


class Revoke(Value):
    """Stop reading these partitions. Commit what was read of them first, unless they are lost to other members."""

    partitions: tuple[TopicPartition, ...]
    is_lost: bool


class Assign(Value):
    """Start reading these partitions as well."""

    partitions: tuple[TopicPartition, ...]


class Fail(Value):
    """The group refuses this member permanently."""

    error_code: ErrorCode


Effect = (
    FindCoordinator
    | SendJoin
    | CountPartitions
    | SendSync
    | SendHeartbeat
    | SendConsumerHeartbeat
    | NameTopics
    | Revoke
    | Assign
    | Fail
)
ShareEffect = FindCoordinator | SendShareHeartbeat | Fail
"""What a member of a share group asks for."""
Counts = Mapping[str, int]
"""Partitions by topic; topics that do not exist are omitted."""
