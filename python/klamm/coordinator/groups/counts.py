"""Counters of a node's group coordinator, under Apache Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_GROUP: Final = "kafka.server:type=group-coordinator-metrics,name="


@dataclass(slots=True)
class GroupCounts:
    """Counters over all partitions. They only grow."""

    completed_rebalances: int = 0
    consumer_rebalances: int = 0
    share_rebalances: int = 0
    streams_rebalances: int = 0
    offset_commits: int = 0
    offset_deletions: int = 0
    offset_expirations: int = 0

    def named(self) -> dict[str, int]:
        """All counters by name."""
        return {
            f"{_GROUP}group-completed-rebalance-count": self.completed_rebalances,
            f"{_GROUP}consumer-group-rebalance-count": self.consumer_rebalances,
            f"{_GROUP}share-group-rebalance-count": self.share_rebalances,
            f"{_GROUP}streams-group-rebalance-count": self.streams_rebalances,
            f"{_GROUP}offset-commit-count": self.offset_commits,
            f"{_GROUP}offset-deletion-count": self.offset_deletions,
            f"{_GROUP}offset-expiration-count": self.offset_expirations,
        }
