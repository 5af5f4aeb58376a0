"""Effects of a group shard, besides responses."""

from __future__ import annotations

from klamm.protocol.messages.share_state import InitializedPartition, SharePartitionKey
from klamm.protocol.value import Value


class ResolvePatterns(Value):
    """Match the regular expressions of a group against all topics, and report to `on_patterns_resolved`.

    The driver does this on another thread: there may be many topics.
    """

    group_id: str
    patterns: tuple[str, ...]


class CreateStates(Value):
    """Create states of a share group at their share coordinators, and report to `on_states_created`."""

    group_id: str
    partitions: tuple[tuple[SharePartitionKey, InitializedPartition], ...]


GroupEffect = ResolvePatterns | CreateStates
