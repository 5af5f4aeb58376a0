"""The members of a group over the wire, whichever protocol they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm.admin.client import Client, check, retried
from klamm.client import UnsupportedVersionError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.membership import (
    Membership,
    of_classic_group,
    of_consumer_group,
    of_share_group,
    of_streams_group,
)
from klamm.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from klamm.protocol.messages.group_messages import DescribeGroupsRequest, DescribeGroupsResponse
from klamm.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from klamm.protocol.messages.streams_messages import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

DESCRIBE_GROUPS_VERSION_MAX: Final = 5
"""The next version has an error for groups that do not exist, and no state."""
CONSUMER_GROUP_DESCRIBE_VERSION_MAX: Final = 1
SHARE_GROUP_DESCRIBE_VERSION_MAX: Final = 1
STREAMS_GROUP_DESCRIBE_VERSION_MAX: Final = 0

_NOT_THIS_KIND: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_Request = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest


def membership(client: Client, name: str) -> Membership:
    """The members of a group; without any and in the state Dead if it does not exist. Raises ClientError."""
    return retried(lambda: _of_any_kind(client.coordinator(name), name))


def _of_any_kind(coordinator: Connection, name: str) -> Membership:
    return (
        _modern_group(
            coordinator,
            ConsumerGroupDescribeRequest((name,)),
            ConsumerGroupDescribeResponse,
            of_consumer_group,
            CONSUMER_GROUP_DESCRIBE_VERSION_MAX,
        )
        or _modern_group(
            coordinator,
            ShareGroupDescribeRequest((name,)),
            ShareGroupDescribeResponse,
            of_share_group,
            SHARE_GROUP_DESCRIBE_VERSION_MAX,
        )
        or _modern_group(
            coordinator,
            StreamsGroupDescribeRequest((name,)),
            StreamsGroupDescribeResponse,
            of_streams_group,
            STREAMS_GROUP_DESCRIBE_VERSION_MAX,
        )
        or _classic_group(coordinator, name)
    )


def _modern_group(
    coordinator: Connection,
    request: _Request,
    answer: type[Any],
    read: Callable[[Any], Membership],
    version_max: int,
) -> Membership | None:
    """None if the group has another kind."""
    try:
        (group,) = coordinator.ask(request, answer, version_max).groups
    except UnsupportedVersionError:
        return None
    if group.error_code in _NOT_THIS_KIND:
        return None
    check(group.error_code, f"group {group.group_id}", group.error_message)
    return read(group)


def _classic_group(coordinator: Connection, name: str) -> Membership:
    answer = coordinator.ask(DescribeGroupsRequest((name,)), DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION_MAX)
    (group,) = answer.groups
    check(group.error_code, f"group {name}")
    return of_classic_group(group)
