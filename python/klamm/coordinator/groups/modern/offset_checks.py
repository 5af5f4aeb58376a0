"""What commits of members of the new protocols have in common (Kafka's `validateOffsetCommit`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm._engine.groups import CommitRequest
from klamm.coordinator.groups.modern.group import FoldedGroup, M
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import UNKNOWN_MEMBER_ID

MEMBER_EPOCH_MIN_VERSION: Final = 9
"""The first version of OffsetCommit with a member epoch."""


def check_transactional(
    group: FoldedGroup[M, Any], request: CommitRequest, check_epoch: Callable[[M], ErrorCode]
) -> ErrorCode:
    """The error for a TxnOffsetCommit. Its clients do not know STALE_MEMBER_EPOCH."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    is_anonymous = epoch == -1 and member_id == UNKNOWN_MEMBER_ID and request.group_instance_id is None
    if is_anonymous or (epoch < 0 and group.is_empty):
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = check_epoch(member)
    return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
