"""The lag of streams behind their topics, from Spark's progress of a query.

    offsets_behind_latest(query.lastProgress)

Spark's own Kafka source adds it to the progress as `metrics`; Spark does not request metrics from Python sources.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.offsets import Offsets, flat


@dataclass(frozen=True, slots=True)
class OffsetsBehindLatest:
    """The lag of one source after a batch: the number of offsets of each partition that the query has not read yet.

    There are fewer records than offsets in compacted and transactional topics.
    """

    partitions: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """The sum over all partitions."""
        return sum(self.partitions.values())

    @property
    def largest(self) -> int:
        """The largest lag of a partition; `maxOffsetsBehindLatest` of Spark's own source."""
        return max(self.partitions.values(), default=0)

    @property
    def smallest(self) -> int:
        """`minOffsetsBehindLatest` of Spark's own source."""
        return min(self.partitions.values(), default=0)

    @property
    def average(self) -> float:
        """`avgOffsetsBehindLatest` of Spark's own source."""
        return self.total / len(self.partitions) if self.partitions else 0.0


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> list[OffsetsBehindLatest]:
    """The lag of each Kafka source of a query with known offsets, in the order of the plan; klamm's and Spark's own.

    `progress`: `query.lastProgress`, one of `query.recentProgress`, or `event.progress` in a StreamingQueryListener;
    None before the first batch. The latest offsets are those that the batch was planned with.
    """
    if progress is None:
        return []
    pairs = (
        (_offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))) for source in progress["sources"]
    )
    return [
        OffsetsBehindLatest({one: max(0, latest[one] - end[one]) for one in sorted(latest) if one in end})
        for end, latest in pairs
        if end is not None and latest is not None
    ]


def _offsets(offsets: object) -> Offsets | None:
    """The offsets of a source if it is a Kafka source: JSON, as text or parsed."""
    try:
        found = json.loads(offsets) if isinstance(offsets, str) else offsets
        if not isinstance(found, dict):
            return None
        return flat({topic: of_topic for topic, of_topic in found.items() if not topic.startswith("@")})
    except (ValueError, AttributeError, TypeError):
        return None
