"""Checks of a ConsumerGroupHeartbeat that need no group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm.coordinator.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.consumer_groups import UNCHANGED_MS, ConsumerGroupHeartbeatRequest

MEMBER_MAKES_ID_VERSION: Final = 1
"""From this version on the member generates its own id (KIP-1082)."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR, with Kafka's text."""
    epoch = request.member_epoch
    needs_id = api_version >= MEMBER_MAKES_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    _check(not needs_id or bool(request.member_id.strip()), "MemberId can't be empty.")
    _check(bool(request.group_id.strip()), "GroupId can't be empty.")
    _check(request.instance_id is None or bool(request.instance_id.strip()), "InstanceId can't be empty.")
    _check(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        _check(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _check(epoch > STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    has_timeout = request.rebalance_timeout_ms != UNCHANGED_MS
    _check(has_timeout, "RebalanceTimeoutMs must be provided in first request.")
    _check(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    _check(has_subscription, message)


def _check(is_valid: bool, message: str) -> None:
    if not is_valid:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
