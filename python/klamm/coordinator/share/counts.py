"""Counters of a node's share coordinator, under Apache Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

METRICS: Final = "kafka.server:type=share-coordinator-metrics,name="


@dataclass(slots=True)
class ShareCounts:
    """Counters over all partitions. They only grow."""

    writes: int = 0
    """Records of states that were written."""

    def named(self) -> dict[str, int]:
        """All counters by name."""
        return {f"{METRICS}write-total": self.writes}
