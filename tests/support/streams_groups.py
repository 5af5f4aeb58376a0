"""Random values of streams groups, and Apache Kafka's JSON for their records."""

from __future__ import annotations

import random
from typing import Any

from klamm.coordinator.groups.record_parts import RecordType
from klamm.coordinator.groups.streams.records import (
    CurrentAssignment,
    MemberMetadata,
    StreamsMetadata,
    StreamsValue,
    TargetMetadata,
)
from klamm.coordinator.groups.streams.tasks import AssignedTasks, TaskSets
from klamm.protocol.messages.streams_messages import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    KeyValue,
    Subtopology,
    Topology,
)

NAMES = {
    StreamsMetadata: "StreamsGroupMetadata",
    MemberMetadata: "StreamsGroupMemberMetadata",
    TargetMetadata: "StreamsGroupTargetAssignmentMetadata",
    TaskSets: "StreamsGroupTargetAssignmentMember",
    CurrentAssignment: "StreamsGroupCurrentMemberAssignment",
    Topology: "StreamsGroupTopology",
}
"""Kafka's name of each record, without Key or Value."""
TYPES = {
    StreamsMetadata: RecordType.STREAMS_GROUP_METADATA,
    MemberMetadata: RecordType.STREAMS_GROUP_MEMBER_METADATA,
    TargetMetadata: RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    TaskSets: RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CurrentAssignment: RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    Topology: RecordType.STREAMS_GROUP_TOPOLOGY,
}


class RandomValues:
    """Random values of records, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def all(self) -> list[StreamsValue]:
        """One value of each record."""
        rng = self._random
        configs = rng.choice(((), (("num.standby.replicas", str(rng.randrange(3))),)))
        return [
            StreamsMetadata(self.int32(), rng.randint(-(2**63), 2**63 - 1), rng.choice((-1, 0, self.int32())), configs),
            self.member(),
            TargetMetadata(self.int32(), rng.choice((0, rng.randrange(2**62)))),
            TaskSets(self.tasks(), self.tasks(), self.tasks()),
            CurrentAssignment(self.int32(), self.int32(), rng.choice((1, 2, 3)), self.assigned(), self.assigned()),
            self.topology(),
        ]

    def int32(self) -> int:
        """An int32."""
        return self._random.randint(-(2**31), 2**31 - 1)

    def text(self) -> str:
        """A string, sometimes longer than a one-byte length can express."""
        rng = self._random
        return "".join(rng.choices("abz-_.é日0", k=rng.choice((0, 1, 5, 40, 130))))

    def member(self) -> MemberMetadata:
        """A member."""
        rng = self._random
        tags = {self.text(): self.text() for _ in range(rng.randrange(3))}
        return MemberMetadata(
            self.text(),
            self.text(),
            self.int32(),
            self.int32(),
            self.text(),
            tuple(sorted(tags.items())),
            rng.choice((None, Endpoint(self.text(), rng.randrange(65536)))),
            rng.choice((None, self.text())),
            rng.choice((None, self.text())),
        )

    def tasks(self) -> dict[str, frozenset[int]]:
        """Some tasks."""
        rng = self._random
        return {
            str(subtopology): frozenset(rng.sample(range(200), rng.randint(1, 4)))
            for subtopology in range(rng.randrange(4))
        }

    def assigned(self) -> AssignedTasks:
        """Tasks with epochs."""
        active = {key: dict.fromkeys(partitions, self.int32()) for key, partitions in self.tasks().items()}
        return AssignedTasks(active, self.tasks(), self.tasks())

    def topology(self) -> Topology:
        """A topology, not necessarily a valid one."""
        return Topology(self.int32(), tuple(self.subtopology() for _ in range(self._random.randrange(4))))

    def subtopology(self) -> Subtopology:
        """A subtopology."""
        rng = self._random

        def texts() -> tuple[str, ...]:
            return tuple(self.text() for _ in range(rng.randrange(3)))

        def topics() -> tuple[InternalTopic, ...]:
            return tuple(self.internal_topic() for _ in range(rng.randrange(3)))

        def indexes() -> tuple[int, ...]:
            return tuple(rng.randint(-(2**15), 2**15 - 1) for _ in range(rng.randrange(3)))

        groups = tuple(CopartitionGroup(indexes(), indexes(), indexes()) for _ in range(rng.randrange(3)))
        return Subtopology(self.text(), texts(), texts(), topics(), texts(), topics(), groups)

    def internal_topic(self) -> InternalTopic:
        """A repartition or changelog topic."""
        configs = tuple(KeyValue(self.text(), self.text()) for _ in range(self._random.randrange(3)))
        return InternalTopic(self.text(), self.int32(), self._random.randint(-(2**15), 2**15 - 1), configs)


def kafka_json(value: StreamsValue) -> dict[str, Any]:
    """A value as JSON for Kafka's generated classes."""
    match value:
        case StreamsMetadata(epoch, metadata_hash, validated, configs):
            fields: dict[str, Any] = {
                "epoch": epoch,
                "metadataHash": metadata_hash,
                "validatedTopologyEpoch": validated,
            }
            return fields | {"lastAssignmentConfigs": _pairs(configs)}
        case TargetMetadata(epoch, timestamp_ms):
            return {"assignmentEpoch": epoch, "assignmentTimestamp": timestamp_ms}
        case TaskSets(active, standby, warmup):
            return {"activeTasks": _tasks(active), "standbyTasks": _tasks(standby), "warmupTasks": _tasks(warmup)}
        case MemberMetadata():
            endpoint = value.user_endpoint
            return {
                "instanceId": value.instance_id,
                "rackId": value.rack_id,
                "clientId": value.client_id,
                "clientHost": value.client_host,
                "rebalanceTimeoutMs": value.rebalance_timeout_ms,
                "topologyEpoch": value.topology_epoch,
                "processId": value.process_id,
                "userEndpoint": None if endpoint is None else {"host": endpoint.host, "port": endpoint.port},
                "clientTags": _pairs(value.client_tags),
            }
        case CurrentAssignment(epoch, previous, state, assigned, pending):
            return {
                "memberEpoch": epoch,
                "previousMemberEpoch": previous,
                "state": state,
                "activeTasks": _tasks_with_epochs(assigned),
                "standbyTasks": _tasks(assigned.standby),
                "warmupTasks": _tasks(assigned.warmup),
                "activeTasksPendingRevocation": _tasks_with_epochs(pending),
                "standbyTasksPendingRevocation": _tasks(pending.standby),
                "warmupTasksPendingRevocation": _tasks(pending.warmup),
            }
        case Topology(epoch, subtopologies):
            return {"epoch": epoch, "subtopologies": [_subtopology(one) for one in subtopologies]}


def _subtopology(one: Subtopology) -> dict[str, Any]:
    return {
        "subtopologyId": one.subtopology_id,
        "sourceTopics": list(one.source_topics),
        "sourceTopicRegex": list(one.source_topic_regex),
        "stateChangelogTopics": [_topic(topic) for topic in one.state_changelog_topics],
        "repartitionSinkTopics": list(one.repartition_sink_topics),
        "repartitionSourceTopics": [_topic(topic) for topic in one.repartition_source_topics],
        "copartitionGroups": [
            {
                "sourceTopics": list(group.source_topics),
                "sourceTopicRegex": list(group.source_topic_regex),
                "repartitionSourceTopics": list(group.repartition_source_topics),
            }
            for group in one.copartition_groups
        ],
    }


def _topic(topic: InternalTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replicationFactor": topic.replication_factor,
        "topicConfigs": [{"key": config.key, "value": config.value} for config in topic.topic_configs],
    }


def _pairs(pairs: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _tasks(tasks: Any) -> list[dict[str, Any]]:
    return [{"subtopologyId": key, "partitions": sorted(partitions)} for key, partitions in sorted(tasks.items())]


def _tasks_with_epochs(assigned: AssignedTasks) -> list[dict[str, Any]]:
    return [
        {
            "subtopologyId": key,
            "partitions": sorted(epochs),
            "assignmentEpochs": [epochs[partition] for partition in sorted(epochs)],
        }
        for key, epochs in sorted(assigned.active.items())
    ]
