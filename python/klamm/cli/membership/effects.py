"""What the member asks its driver to do, in order. The driver answers each request with the event it names."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.cli.membership.assignors import TopicPartition
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from klamm.protocol.value import Value


class FindCoordinator(Value):
    """Look for the group's coordinator, then `on_coordinator_found`."""


class SendJoin(Value):
    """Send it and wait, up to `timeout_ms`, for the others to join too; then `on_joined`."""

    request: JoinGroupRequest
    timeout_ms: int


class CountPartitions(Value):
    """Read how many partitions each of these topics has, then `on_counted`."""

    topics: frozenset[str]


class SendSync(Value):
    """Send it, then `on_synced`."""

    request: SyncGroupRequest


class SendHeartbeat(Value):
    """Send it, then `on_heartbeat`."""

    request: HeartbeatRequest


class Revoke(Value):
    """Read these no more. What was read of them is committed first, unless it is lost: others have them already."""

    partitions: tuple[TopicPartition, ...]
    is_lost: bool


class Assign(Value):
    """Read these."""

    partitions: tuple[TopicPartition, ...]


class Fail(Value):
    """The group does not take this member: nothing more is asked."""

    error_code: ErrorCode


Effect = FindCoordinator | SendJoin | CountPartitions | SendSync | SendHeartbeat | Revoke | Assign | Fail
Counts = Mapping[str, int]
"""Partitions by topic; a topic that is not there is left out."""
