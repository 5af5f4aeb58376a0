"""Which partitions the members of a group can be queried for (Kafka's `EndpointToPartitionsManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from klamm.coordinator.groups.streams.member import StreamsMember
from klamm.coordinator.groups.streams.topology import ConfiguredSubtopology, ConfiguredTopology, PartitionCount
from klamm.protocol.messages.streams_messages import EndpointPartitions, EndpointToPartitions


def endpoints(
    members: Iterable[StreamsMember], topology: ConfiguredTopology, existing: PartitionCount
) -> tuple[EndpointToPartitions, ...]:
    """The partitions of each member with an endpoint.

    While the topology cannot be configured there are no tasks, so the members have no partitions.
    """
    subtopologies = {one.subtopology_id: one for one in topology.subtopologies or ()}
    return tuple(
        EndpointToPartitions(
            member.metadata.user_endpoint,
            tuple(_partitions(member.assigned.active, subtopologies, existing)),
            tuple(_partitions(member.assigned.standby, subtopologies, existing)),
        )
        for member in members
        if member.metadata.user_endpoint is not None
    )


def _partitions(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], existing: PartitionCount
) -> Iterator[EndpointPartitions]:
    for subtopology_id, partitions in tasks.items():
        subtopology, ordered = subtopologies.get(subtopology_id), tuple(sorted(partitions))
        for topic in () if subtopology is None else subtopology.input_topics:
            # As Kafka: a topic with fewer partitions than the member has tasks gets the first of these.
            count = existing(topic)
            if count is not None:
                yield EndpointPartitions(topic, ordered[:count])
