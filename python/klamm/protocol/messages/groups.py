"""The group APIs' bodies as our values and back, where a version's shape is not the newest one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.coordinators import FindCoordinatorResponse, FoundCoordinator
from klamm.protocol.messages.group_messages import (
    FETCH_GROUPS_VERSION,
    FetchedGroup,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    OffsetFetchResponse,
)
from klamm.protocol.wire.codec import read, write

FIND_MANY_VERSION: Final = 4
LEAVE_MANY_VERSION: Final = 3
NULL_PROTOCOL_NAME_VERSION: Final = 7
FETCH_ERROR_VERSION: Final = 2


def read_join_group(version: int, body: bytes) -> JoinGroupRequest:
    """JoinGroup. A protocol that is named twice counts once; version 0 has no rebalance timeout of its own."""
    request = read(JoinGroupRequest, version, body)
    first = {protocol.name: protocol for protocol in reversed(request.protocols)}
    if len(first) < len(request.protocols):
        once = tuple(protocol for protocol in request.protocols if first[protocol.name] is protocol)
        request = replace(request, protocols=once)
    return replace(request, rebalance_timeout_ms=request.session_timeout_ms) if version == 0 else request


def write_join_group(version: int, response: JoinGroupResponse) -> bytes:
    """A protocol name that is not there is "" below version 7, null from there on."""
    name = response.protocol_name or (None if version >= NULL_PROTOCOL_NAME_VERSION else "")
    return write(response if name == response.protocol_name else replace(response, protocol_name=name), version)


def read_leave_group(version: int, body: bytes) -> LeaveGroupRequest:
    """LeaveGroup; below version 3 one member leaves."""
    request = read(LeaveGroupRequest, version, body)
    if version >= LEAVE_MANY_VERSION:
        return request
    return replace(request, members=(LeavingMember(request.member_id),))


def write_leave_group(version: int, response: LeaveGroupResponse) -> bytes:
    """Below version 3 the one member's error is at the top."""
    if version < LEAVE_MANY_VERSION and not response.error_code:
        response = LeaveGroupResponse(response.members[0].error_code)
    return write(response, version)


def write_offset_fetch(version: int, groups: Sequence[FetchedGroup]) -> bytes:
    """With a group's error there are no topics; version 1 has the error in every partition instead."""
    answered = tuple(
        FetchedGroup(group.group_id, (), group.error_code)
        if group.error_code and version >= FETCH_ERROR_VERSION
        else group
        for group in groups
    )
    if version >= FETCH_GROUPS_VERSION:
        return write(OffsetFetchResponse(answered), version)
    (group,) = answered
    return write(OffsetFetchResponse((), group.topics, group.error_code), version)


def write_find_coordinator(version: int, found: Sequence[FoundCoordinator]) -> bytes:
    """Below version 4 there is one answer, which also names its error."""
    if version >= FIND_MANY_VERSION:
        return write(FindCoordinatorResponse(tuple(found)), version)
    (one,) = found
    name = ErrorCode(one.error_code).name
    return write(FindCoordinatorResponse((), one.error_code, name, one.node_id, one.host, one.port), version)
