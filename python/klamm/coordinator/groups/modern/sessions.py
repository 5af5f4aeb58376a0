"""Timers of members of the new protocols."""

from __future__ import annotations

from typing import Final

TimerKey = tuple[str, ...]

MEMBER_SESSION: Final = "member session"
REBALANCE: Final = "rebalance"
CLASSIC_JOIN: Final = "classic join"
CLASSIC_SYNC: Final = "classic sync"
RETRY_MS: Final = 500
"""The pause before the removal of a member is retried after it failed or was rolled back, as in Kafka."""


def member_session_timer(group_id: str, member_id: str) -> TimerKey:
    """The session of a member."""
    return (MEMBER_SESSION, group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    """How long a member may take to give up partitions."""
    return (REBALANCE, group_id, member_id)


def classic_join_timer(group_id: str, member_id: str) -> TimerKey:
    """How long a member of the classic protocol may take to join again."""
    return (CLASSIC_JOIN, group_id, member_id)


def classic_sync_timer(group_id: str, member_id: str) -> TimerKey:
    """How long a member of the classic protocol may take to send SyncGroup after it joined."""
    return (CLASSIC_SYNC, group_id, member_id)
