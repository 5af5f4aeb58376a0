"""The members of a group over the wire, whichever protocol they use."""

from __future__ import annotations

from typing import Final

from klamm.admin.client import Client, check, retried
from klamm.client import UnsupportedVersionError
from klamm.client.connection import Connection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.membership import Membership, of_classic_group, of_consumer_group, of_share_group
from klamm.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from klamm.protocol.messages.group_messages import DescribeGroupsRequest, DescribeGroupsResponse
from klamm.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupDescribeResponse

DESCRIBE_GROUPS_VERSION_MAX: Final = 5
"""The next version has an error for groups that do not exist, and no state."""
CONSUMER_GROUP_DESCRIBE_VERSION_MAX: Final = 1
SHARE_GROUP_DESCRIBE_VERSION_MAX: Final = 1

_NOT_THIS_KIND: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


def membership(client: Client, name: str) -> Membership:
    """The members of a group; without any and in the state Dead if it does not exist. Raises ClientError."""
    coordinator = client.coordinator(name)
    return retried(
        lambda: (
            _consumer_group(coordinator, name) or _share_group(coordinator, name) or _classic_group(coordinator, name)
        )
    )


def _consumer_group(coordinator: Connection, name: str) -> Membership | None:
    """None if the group has another kind."""
    request = ConsumerGroupDescribeRequest((name,))
    try:
        answer = coordinator.ask(request, ConsumerGroupDescribeResponse, CONSUMER_GROUP_DESCRIBE_VERSION_MAX)
    except UnsupportedVersionError:
        return None
    (group,) = answer.groups
    if group.error_code in _NOT_THIS_KIND:
        return None
    check(group.error_code, f"group {name}", group.error_message)
    return of_consumer_group(group)


def _share_group(coordinator: Connection, name: str) -> Membership | None:
    """None if the group has another kind."""
    request = ShareGroupDescribeRequest((name,))
    try:
        answer = coordinator.ask(request, ShareGroupDescribeResponse, SHARE_GROUP_DESCRIBE_VERSION_MAX)
    except UnsupportedVersionError:
        return None
    (group,) = answer.groups
    if group.error_code in _NOT_THIS_KIND:
        return None
    check(group.error_code, f"group {name}", group.error_message)
    return of_share_group(group)


def _classic_group(coordinator: Connection, name: str) -> Membership:
    answer = coordinator.ask(DescribeGroupsRequest((name,)), DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION_MAX)
    (group,) = answer.groups
    check(group.error_code, f"group {name}")
    return of_classic_group(group)
