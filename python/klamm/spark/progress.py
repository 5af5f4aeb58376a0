"""How far streams are behind their topics, by what Spark tells of a query's progress.

    offsets_behind_latest(query.lastProgress)

Spark's own Kafka source puts this into the progress as `metrics`; its engine asks no source in Python for any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm.spark.ranges.offsets import Offsets, TopicPartition, flat


@dataclass(frozen=True, slots=True)
class OffsetsBehindLatest:
    """Of one source, after a batch: how many offsets each partition has that the query has not read yet.

    Offsets are not quite records: compacted and transactional topics have some that hold none.
    """

    partitions: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Of all partitions."""
        return sum(self.partitions.values())

    @property
    def largest(self) -> int:
        """Of the partition that is furthest behind; `maxOffsetsBehindLatest` of Spark's own source."""
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
    """Of each Kafka source of a query that has told its offsets, in the order of the plan; ours and Spark's own.

    `progress`: `query.lastProgress`, one of `query.recentProgress`, or `event.progress` in a StreamingQueryListener;
    None before the first batch. The latest offsets are those that the batch was planned with.
    """
    if progress is None:
        return []
    told = ((_offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))) for source in progress["sources"])
    return [
        OffsetsBehindLatest({one: max(0, latest[one] - end[one]) for one in sorted(latest) if one in end})
        for end, latest in told
        if end is not None and latest is not None
    ]


def _offsets(told: object) -> Offsets | None:
    """The offsets of a source, if they are those of a Kafka source: JSON, as text or read already."""
    try:
        found = json.loads(told) if isinstance(told, str) else told
        if not isinstance(found, dict):
            return None
        return flat({topic: of_topic for topic, of_topic in found.items() if not topic.startswith("@")})
    except (ValueError, AttributeError, TypeError):
        return None
