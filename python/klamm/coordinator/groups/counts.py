"""Counters of a node's group coordinator, under Apache Kafka's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from klamm.coordinator.groups.states import GroupState
from klamm.protocol.messages.group_messages import ListedGroup

_GROUP: Final = "kafka.server:type=group-coordinator-metrics,name="
_MANAGER: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_CLASSIC: Final = "classic"
_STATES: Final = {
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
"""By kind: the states of groups of the new protocols."""


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


def group_gauges(groups: Iterable[ListedGroup], offsets: int) -> dict[str, int]:
    """The numbers of groups by kind and state, and the number of offsets, by name (`GroupCoordinatorMetrics`)."""
    found = Counter((group.group_type, group.group_state) for group in groups)
    kinds = Counter[str]()
    for (kind, _), count in found.items():
        kinds[kind] += count
    gauges = {f"{_GROUP}group-count,protocol={kind}": kinds[kind] for kind in (_CLASSIC, *_STATES)}
    for kind, states in _STATES.items():
        gauges |= {f"{_GROUP}{kind}-group-count,state={state}": found[kind, state] for state in states}
    gauges |= {f"{_MANAGER}NumGroups{state.value}": found[_CLASSIC, state.value] for state in GroupState}
    return gauges | {f"{_MANAGER}NumGroups": kinds[_CLASSIC], f"{_MANAGER}NumOffsets": offsets}
