"""Topics and their metadata, from creation to deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.protocol.api_key import ApiKey
from tests.interop.peers import Both, versions


def new_topic(name: str, partitions: int = 2, factor: int = 1, **configs: str | None) -> dict[str, Any]:
    # Retention must not delete records with timestamps of 1970.
    given = {"retention_ms": "-1", **configs}
    named = [{"name": key.replace("_", "."), "value": value} for key, value in given.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": named}


def assigned(name: str, *brokers: Sequence[int]) -> dict[str, Any]:
    assignments = [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(brokers)]
    return new_topic(name, -1, -1) | {"assignments": assignments}


def topics(both: Both) -> None:
    """CreateTopics and CreatePartitions."""
    for version in versions(ApiKey.CREATE_TOPICS):
        for label, wanted, more in (
            ("plain", [new_topic(f"c{version}")], {}),
            ("one that is there", [new_topic(f"c{version}"), new_topic(f"other{version}")], {}),
            ("twice in a request", [new_topic("x"), new_topic("x")], {}),
            ("defaults", [new_topic(f"default{version}", -1, -1)], {}),
            ("validate only", [new_topic(f"never{version}")], {"validate_only": True}),
            ("a bad config", [new_topic("x", retention_ms="x"), new_topic("y", retention_ms=None)], {}),
            ("assigned", [assigned(f"assigned{version}", [1], [1])], {}),
            ("badly assigned", [assigned("x", [7]), assigned("y", [1, 1]), assigned("z", [])], {}),
            ("bad counts", [new_topic("x", 0), new_topic("y", 1, 2), new_topic("z", 1, 0)], {}),
            ("bad names", [new_topic(name) for name in ("a/b", "", ".", "z" * 250)], {}),
            ("no time", [new_topic(f"late{version}"), new_topic("c2")], {"timeout_ms": 0}),
        ):
            both.ask(ApiKey.CREATE_TOPICS, version, label, **{"topics": wanted, "timeout_ms": 9_000, **more})
    for version in versions(ApiKey.CREATE_PARTITIONS):
        for label, name, count, brokers, validate in (
            ("more", "c2", 3 + version, None, False),
            ("as many", "c2", 3 + version, None, False),
            ("fewer", "c2", 1, None, False),
            ("unknown", "nope", 3, None, False),
            ("validate only", "c2", 99, None, True),
            ("assigned", "c3", 3 + version, [{"broker_ids": [1]}], False),
            ("badly assigned", "c3", 99, [{"broker_ids": [1]}], False),
        ):
            wanted = [{"name": name, "count": count, "assignments": brokers}]
            both.ask(ApiKey.CREATE_PARTITIONS, version, label, topics=wanted, timeout_ms=9_000, validate_only=validate)
    twice = [{"name": "c4", "count": 8, "assignments": None}] * 2
    both.every(ApiKey.CREATE_PARTITIONS, "twice", topics=twice, timeout_ms=9_000, validate_only=False)
    both.every(ApiKey.CREATE_PARTITIONS, "no time", topics=twice[:1], timeout_ms=0, validate_only=False)
    both.learn_topics()


def reassignments(both: Both) -> None:
    """AlterPartitionReassignments and ListPartitionReassignments with a single broker."""

    def wanted(name: str, *partitions: tuple[int, list[int] | None]) -> dict[str, Any]:
        return {"name": name, "partitions": [{"partition_index": at, "replicas": ids} for at, ids in partitions]}

    for label, topics, more in (
        ("as it is", [wanted("c2", (0, [1]), (1, [1]))], {}),
        ("an unknown broker", [wanted("c2", (0, [7]), (1, [1, 7]))], {}),
        ("bad replicas", [wanted("c2", (0, []), (1, [1, 1])), wanted("c3", (0, [-1]))], {}),
        ("cancel", [wanted("c2", (0, None))], {}),
        ("what is not there", [wanted("nope", (0, [1]), (1, None)), wanted("c2", (99, [1]), (-1, None))], {}),
        ("no partitions", [wanted("c2"), wanted("nope")], {}),
        ("another factor", [wanted("c2", (0, [1, 7]))], {"allow_replication_factor_change": False}),
        ("no topics", [], {}),
        ("no topics and no time", [], {"timeout_ms": 0}),
        ("no time", [wanted("c2", (0, [1]))], {"timeout_ms": 0}),
    ):
        both.every(ApiKey.ALTER_PARTITION_REASSIGNMENTS, label, **{"topics": topics, "timeout_ms": 9_000, **more})
    for label, listed in (
        ("all", None),
        ("none", []),
        ("some", [{"name": "c2", "partition_indexes": [0, 9]}, {"name": "nope", "partition_indexes": [0]}]),
    ):
        both.every(ApiKey.LIST_PARTITION_REASSIGNMENTS, label, topics=listed, timeout_ms=9_000)
        both.every(ApiKey.LIST_PARTITION_REASSIGNMENTS, f"{label}, no time", topics=listed, timeout_ms=0)


def metadata(both: Both) -> None:
    """Metadata and DescribeTopicPartitions."""
    named = [{"name": name} for name in ("c2", "c2", "nope", "a b", "")]
    both.every(ApiKey.METADATA, "all", own=lambda version: {"topics": None if version else []})
    both.every(ApiKey.METADATA, "none", since=1, topics=[])
    both.every(ApiKey.METADATA, "named", topics=named, allow_auto_topic_creation=False)
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    both.every(ApiKey.METADATA, "operations", topics=[{"name": "c2"}], **operations)
    by_id = lambda peer: [{"name": None, "topic_id": peer.topic(name)} for name in ("c2", "nope")]  # noqa: E731
    both.every(ApiKey.METADATA, "by id", since=10, topics=by_id)
    both.every(
        ApiKey.METADATA, "name and id", since=10, topics=lambda peer: [{"name": "c2", "topic_id": peer.topic("c2")}]
    )
    some = [{"name": name} for name in ("c3", "c2", "c4", "nope")]
    for limit in (2_000, 3, 0, -1):
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, f"limit {limit}", topics=some, response_partition_limit=limit, cursor=None
        )
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            f"all, limit {limit}",
            topics=[],
            response_partition_limit=limit,
            cursor=None,
        )
    for name, index in (("c2", 1), ("c21", 1), ("c2", -1), ("c2", 99)):
        cursor = {"topic_name": name, "partition_index": index}
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            f"from {name}-{index}",
            topics=some,
            response_partition_limit=3,
            cursor=cursor,
        )
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            f"all from {name}-{index}",
            topics=[],
            response_partition_limit=3,
            cursor=cursor,
        )


def deletions(both: Both) -> None:
    """DeleteTopics, by name and by id."""
    for version in versions(ApiKey.DELETE_TOPICS):
        names = [f"c{version + 1}", "nope", "x", "x"]
        by_name = [{"name": name} for name in names[:2]]
        topic_id = f"assigned{version + 1}"
        both.ask(
            20,
            version,
            "some",
            topic_names=names,
            topics=lambda peer, named=by_name, other=topic_id: [*named, {"name": None, "topic_id": peer.topic(other)}],
            timeout_ms=9_000,
        )
        late = {"topic_names": ["default2"], "topics": [{"name": "default2"}], "timeout_ms": 0}
        both.ask(ApiKey.DELETE_TOPICS, version, "no time", **late)
    both.learn_topics()
    both.every(ApiKey.METADATA, "what is left", own=lambda version: {"topics": None if version else []})
