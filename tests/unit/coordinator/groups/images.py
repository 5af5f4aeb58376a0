"""The metadata of a few topics, as a broker has it."""

from __future__ import annotations

from klamm._engine.metadata import Image
from klamm.protocol.generated.metadata_records import MetadataRecord, PartitionRecord, TopicRecord, encode_at
from klamm.protocol.topic_info import TopicInfo


def image_of(*topics: TopicInfo) -> Image:
    """An image with these topics."""
    return Image().apply([encode_at(record, 30) for topic in topics for record in records_of(topic)])


def records_of(topic: TopicInfo) -> list[MetadataRecord]:
    """A topic and its partitions."""

    def partition(index: int) -> PartitionRecord:
        lists = {"removing_replicas": (), "adding_replicas": ()}
        return PartitionRecord(partition_id=index, topic_id=topic.topic_id, replicas=(0,), isr=(0,), leader=0, **lists)

    return [TopicRecord(name=topic.name, topic_id=topic.topic_id), *map(partition, range(topic.partition_count))]
