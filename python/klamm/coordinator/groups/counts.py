"""What a node's group coordinator has done, counted where it is done; the names are Apache Kafka's."""

from __future__ import annotations

from typing import Final

_GROUP: Final = "kafka.server:type=group-coordinator-metrics,name="


class GroupCounts:
    """Numbers that only grow, of all partitions together."""

    __slots__ = ("completed_rebalances", "offset_commits", "offset_deletions", "offset_expirations")

    def __init__(self) -> None:
        self.completed_rebalances = 0
        self.offset_commits = 0
        self.offset_deletions = 0
        self.offset_expirations = 0

    def named(self) -> dict[str, int]:
        """All of them, by name."""
        return {
            f"{_GROUP}group-completed-rebalance-count": self.completed_rebalances,
            f"{_GROUP}offset-commit-count": self.offset_commits,
            f"{_GROUP}offset-deletion-count": self.offset_deletions,
            f"{_GROUP}offset-expiration-count": self.offset_expirations,
        }
