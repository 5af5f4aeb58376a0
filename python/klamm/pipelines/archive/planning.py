"""Plans the ranges that a run archives, from the archive's content and the cluster's offsets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from klamm.pipelines.archive.manifest import Manifest, Range, Topic
from klamm.pipelines.errors import PipelineError
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.offsets import OffsetRange


@dataclass(slots=True)
class Plan:
    """Ranges to read, and ranges that can no longer be read."""

    ranges: list[OffsetRange] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)


def check_same(known: Topic | None, name: str, topic_id: str | None) -> None:
    """Raise PipelineError if the topic with this id is not the topic that is archived under its name.

    Brokers before Apache Kafka 2.8 have no ids, so this is unknown.
    """
    if known is not None and None not in (known.topic_id, topic_id) and known.topic_id != topic_id:
        raise PipelineError(
            f"topic '{name}' was deleted and made again: the archive holds the one with id {known.topic_id}, the "
            f"cluster has {topic_id}; archive it into another folder"
        )


def plan(
    manifest: Manifest, topic: str, earliest: Mapping[int, int], latest: Mapping[int, int], *, allow_loss: bool
) -> Plan:
    """The new offset ranges of each partition; both mappings have offsets by partition.

    A partition that was never archived starts at its log start offset: records deleted before that are not a loss.
    PipelineError if records were deleted since the last run, unless `allow_loss`, and if a log ends before the archive:
    it then has other records at archived offsets.
    """
    found = Plan()
    for number in sorted(latest.keys() & earliest.keys()):
        partition = TopicPartition(topic, number)
        low, high = earliest[number], latest[number]
        known = manifest.end((topic, number))
        start = low if known is None else known
        if high < start:
            raise PipelineError(
                f"partition {partition} ends with offset {high}, and the archive has it up to {start}: the cluster "
                "lost records that are archived, and gives their offsets to others; archive it into another folder"
            )
        if low > start:
            if not allow_loss:
                raise PipelineError(
                    f"partition {partition} begins with offset {low}, and the archive ends with {start}: {low - start} "
                    "offsets were deleted, by retention or by request, before they were archived; --allow-loss notes "
                    "that in the manifest and continues"
                )
            found.lost.append(Range(topic, number, start, low, 0, lost=True))
            start = low
        if start < high:
            found.ranges.append(OffsetRange(partition, start, high))
    return found
