"""Every version of every API that klamm serves, sent to Apache Kafka 4.3.1 and to klamm: the same answers.

Requests are written by kio's schemas, field by field; what a version does not have is dropped. Answers are read the
same way and compared whole, but for addresses, ids, times and sizes; and of messages only that there is one where Kafka
has one, since klamm's are in its own words.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from klamm import records
from klamm.protocol.api_key import ApiKey
from tests.interop.apache_kafka import KafkaNode
from tests.interop.peers import VERSIONS, Both, Peer, versions
from tests.support.foreign import require
from tests.support.node_process import NodeProcess


def test_every_version_is_answered_as_by_apache_kafka(tmp_path: Path) -> None:
    require("java", "mvn")
    overrides = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
    kafka = KafkaNode(tmp_path / "kafka", overrides=overrides)
    kafka.format("4L6g3nShT-eMCtK--X86sw")
    with kafka, NodeProcess(tmp_path / "klamm", overrides=overrides) as klamm:
        both = Both(Peer(kafka.port), Peer(klamm.port))
        for part in (
            told_versions,
            topics,
            metadata,
            cluster,
            configs,
            security,
            produces,
            offsets,
            fetches,
            repeats,
            groups,
            deletions,
        ):
            part(both)
        on_controllers = Both(Peer(controller_port(both.kafka)), Peer(controller_port(both.klamm)))
        controllers(on_controllers)
        both.differences |= on_controllers.differences
    told = "\n".join(f"{what} (versions {which})" for what, which in both.differences.items())
    assert not told, f"{len(both.differences)} differences in {both.count} requests:\n{told}"


def controller_port(peer: Peer) -> int:
    """Where the only voter listens."""
    metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    [node] = peer.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": [metadata]})["nodes"]
    port: int = node["listeners"][0]["port"]
    return port


def controllers(both: Both) -> None:
    """What a controller listener serves, for tools that were given its address (KIP-919), and for brokers."""
    for kind in (1, 2, 3):
        both.every(ApiKey.DESCRIBE_CLUSTER, f"at a controller, endpoint type {kind}", endpoint_type=kind)
    for version in versions(ApiKey.CREATE_TOPICS):
        for label in ("new", "again"):
            name = f"controllers{version}"
            both.ask(
                ApiKey.CREATE_TOPICS, version, f"at a controller, {label}", topics=[new_topic(name)], timeout_ms=9_000
            )
    broker = resource(4, "7", ("background.threads", "9"), operation=0)
    both.every(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "at a controller",
        resources=[resource(2, "p3", operation=0), broker],
        validate_only=False,
    )
    asked = [{"resource_type": kind, "resource_name": name} for kind, name in ((2, "p3"), (2, "x"), (4, "7"), (99, ""))]
    for one in asked:
        both.every(ApiKey.DESCRIBE_CONFIGS, f"at a controller, {one}", resources=[one], include_synonyms=True)
    unknown = {"broker_id": 5, "broker_epoch": 3, "log_dirs": [uuid.UUID(int=5)], "incarnation_id": uuid.UUID(int=4)}
    both.every(ApiKey.BROKER_REGISTRATION, "another cluster's broker", cluster_id="x", **unknown)
    both.every(ApiKey.BROKER_HEARTBEAT, "an unknown broker", **unknown)
    both.every(ApiKey.ALLOCATE_PRODUCER_IDS, "an unknown broker", **unknown)


def told_versions(both: Both) -> None:
    """No other ranges than Kafka's, and those that are asked for here."""
    both.every(ApiKey.API_VERSIONS, "no name", client_software_name="me", client_software_version="1")
    both.ask(ApiKey.API_VERSIONS, 3, "a bad name", client_software_name="m e!", client_software_version="1")
    both.ask(ApiKey.API_VERSIONS, 0, "to compare")
    theirs, ours = (
        {each["api_key"]: (each["min_version"], each["max_version"]) for each in peer.last["api_keys"]}
        for peer in (both.kafka, both.klamm)
    )
    # Produce is told from 0 on for old clients' sake, and served from 3 on.
    for_clients = {key: each for key, each in VERSIONS.items() if key in theirs}
    assert ours == {**for_clients, 0: (0, VERSIONS[0][1])}
    assert ours.items() <= theirs.items()


def new_topic(name: str, partitions: int = 2, factor: int = 1, **configs: str | None) -> dict[str, Any]:
    # Times of 1970 are not to be retained away.
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


def cluster(both: Both) -> None:
    """DescribeCluster, DescribeQuorum, ElectLeaders, DescribeLogDirs, UpdateFeatures."""
    for kind in (1, 2, 3):
        both.every(
            ApiKey.DESCRIBE_CLUSTER,
            f"endpoint type {kind}",
            include_cluster_authorized_operations=True,
            endpoint_type=kind,
        )
    for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("c2", 0)):
        asked = [{"topic_name": name, "partitions": [{"partition_index": index}]}]
        both.every(ApiKey.DESCRIBE_QUORUM, f"{name}-{index}", topics=asked)
    both.every(ApiKey.DESCRIBE_QUORUM, "nothing", topics=[])
    some = [{"topic": "c2", "partitions": [0, 99]}, {"topic": "nope", "partitions": [0]}]
    for kind in (0, 1):
        both.every(ApiKey.ELECT_LEADERS, f"type {kind}", topic_partitions=some, timeout_ms=9_000, election_type=kind)
    both.every(ApiKey.ELECT_LEADERS, "all", topic_partitions=None, timeout_ms=9_000, election_type=0)
    both.every(ApiKey.ELECT_LEADERS, "no time", topic_partitions=some, timeout_ms=0, election_type=0)
    both.every(ApiKey.DESCRIBE_LOG_DIRS, "some", topics=some)
    both.every(ApiKey.DESCRIBE_LOG_DIRS, "none", topics=[])
    both.every(ApiKey.DESCRIBE_LOG_DIRS, "all", topics=None)
    for name, level, kind in (
        ("nope", 1, 1),
        ("metadata.version", 99, 1),
        ("metadata.version", 30, 1),
        ("metadata.version", 29, 1),
        ("metadata.version", 29, 2),
        ("metadata.version", 20, 3),
        ("metadata.version", 30, 0),
    ):
        update = [
            {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind > 1},
        ]
        for validate in (True, False):
            label = f"{name}={level}, type {kind}, {validate=}"
            both.every(ApiKey.UPDATE_FEATURES, label, feature_updates=update, validate_only=validate, timeout_ms=9_000)


def resource(kind: int, name: str, *configs: tuple[str, str | None], operation: int = 0) -> dict[str, Any]:
    values = [{"name": key, "value": value, "config_operation": operation} for key, value in configs]
    return {"resource_type": kind, "resource_name": name, "configs": values}


def configs(both: Both) -> None:
    """DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""
    for names in (None, [], ["retention.ms", "nope"]):
        asked = [{"resource_type": 2, "resource_name": "c2", "configuration_keys": names}]
        both.every(ApiKey.DESCRIBE_CONFIGS, f"topic, {names}", resources=asked, include_synonyms=True)
    for kind, name in [(2, "nope"), (2, ""), (2, "a b"), (4, "7"), (4, "x"), (99, "x"), (0, ""), (1, "x")]:
        both.every(
            ApiKey.DESCRIBE_CONFIGS, f"type {kind} {name!r}", resources=[{"resource_type": kind, "resource_name": name}]
        )
    changes = [("retention.ms", "77")]
    for validate in (True, False):
        for key, more in ((ApiKey.ALTER_CONFIGS, {}), (ApiKey.INCREMENTAL_ALTER_CONFIGS, {"operation": 0})):
            several = [resource(2, "c2", *changes, **more), resource(2, "nope", *changes, **more)]
            several += [
                resource(2, "c3", ("retention.ms", "x"), **more),
                resource(4, "1", ("background.threads", "11")),
            ]
            both.every(key, f"{validate=}", resources=several, validate_only=validate)
            asked = [{"resource_type": 2, "resource_name": "c2", "configuration_keys": ["retention.ms"]}]
            both.ask(
                ApiKey.DESCRIBE_CONFIGS, 4, f"after API {key}, {validate=}", resources=asked, include_synonyms=True
            )
    both.every(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "delete",
        resources=[resource(2, "c2", *changes, operation=1)],
        validate_only=False,
    )
    both.every(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "of metrics",
        resources=[resource(16, "m", ("interval.ms", "1000"))],
        validate_only=False,
    )
    both.every(ApiKey.LIST_CONFIG_RESOURCES, "all", resource_types=[])
    for kind in (2, 4, 8, 16, 32, 99):
        both.every(ApiKey.LIST_CONFIG_RESOURCES, f"type {kind}", resource_types=[kind])


ANY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def security(both: Both) -> None:
    """DescribeAcls and DescribeUserScramCredentials without authorizer and without credentials."""
    # Version 1 knows no pattern MATCH or ANY with a user resource; LITERAL is 3.
    for version in versions(ApiKey.DESCRIBE_ACLS):
        both.ask(ApiKey.DESCRIBE_ACLS, version, "acls", **ANY_ACL | {"pattern_type_filter": 3})
    both.every(
        ApiKey.DESCRIBE_ACLS, "acls of a topic", **ANY_ACL | {"resource_type_filter": 2, "resource_name_filter": "c2"}
    )
    for label, users in (("all", None), ("none named", []), ("unknown", ["bob"]), ("twice", ["bob", "bob", "eve"])):
        both.every(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            label,
            users=None if users is None else [{"name": name} for name in users],
        )


def batch(count: int = 3, **fields: Any) -> bytes:
    return records.encode([records.NewRecord(b"v%d" % at, b"k%d" % at, 1_000 + at) for at in range(count)], **fields)


def produces(both: Both) -> None:
    """Produce, InitProducerId, DescribeProducers."""
    names = [f"p{version}" for version in versions(ApiKey.PRODUCE)]
    extra = [new_topic("idem"), new_topic("small", max_message_bytes="100"), new_topic("empty")]
    extra += [new_topic("times", message_timestamp_type="LogAppendTime"), new_topic("keys", cleanup_policy="compact")]
    both.ask(ApiKey.CREATE_TOPICS, 7, "for produces", topics=[*map(new_topic, names), *extra], timeout_ms=9_000)
    both.learn_topics()
    whole = batch()
    damaged, old, new = (
        whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for at, flip in ((len(whole) - 1, 1), (16, 3), (16, 1))
    )
    without_key = records.encode([records.NewRecord(b"x", b"k"), records.NewRecord(b"x")])
    for version in versions(ApiKey.PRODUCE):
        own = f"p{version}"
        for label, name, data in (
            *((f"codec {codec}", own, batch(compression=codec)) for codec in records.CODECS),
            ("damaged", own, damaged),
            ("magic 1", own, old),
            ("magic 3", own, new),
            ("nothing", own, b""),
            ("two batches", own, whole + whole),
            ("cut", own, whole[:-3]),
            ("too large", "small", batch(20)),
            ("without key", "keys", without_key),
            ("append time", "times", whole),
            ("unknown topic", "nope", whole),
        ):
            produce(both, version, label, name, 0, data)
        produce(both, version, "acks 1", own, 1, whole, acks=1)
        produce(both, version, "acks 2", own, 1, whole, acks=2)
        produce(both, version, "unknown partition", own, 9, whole)
        both.ask(ApiKey.PRODUCE, version, "nothing at all", acks=-1, timeout_ms=9_000, topic_data=[])
    sequences = [0, 0, 3, 9, 6, 9, 12, 15, 18, 0, 3, 18]
    for at, sequence in enumerate(sequences):
        idempotent(both, f"sequence {sequence} at {at}", sequence)
    for epoch, sequence in ((1, 3), (1, 0), (0, 21), (1, 3)):
        idempotent(both, f"epoch {epoch}, sequence {sequence}", sequence, epoch)
    idempotent(both, "before the end of numbers", 2**31 - 3, producer_id=5_000)
    idempotent(both, "over the end of numbers", 0, producer_id=5_000)
    both.every(ApiKey.DESCRIBE_PRODUCERS, "after", topics=[{"name": "idem", "partition_indexes": [0, 1, 77]}])
    both.every(
        ApiKey.DESCRIBE_PRODUCERS,
        "bad names",
        topics=[{"name": name, "partition_indexes": [0]} for name in ("nope", "a b")],
    )
    until(both, 22, 4, {"producer_id": -1, "producer_epoch": -1})
    both.every(ApiKey.INIT_PRODUCER_ID, "new", producer_id=-1, producer_epoch=-1)
    both.every(ApiKey.INIT_PRODUCER_ID, "again", producer_id=4, producer_epoch=3)
    both.every(
        ApiKey.INIT_PRODUCER_ID, "empty transactional id", transactional_id="", producer_id=-1, producer_epoch=-1
    )


def idempotent(both: Both, label: str, sequence: int, epoch: int = 0, producer_id: int = 4_000) -> None:
    data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    produce(both, 9, label, "idem", 0, data)


def produce(  # noqa: PLR0917
    both: Both, version: int, label: str, name: str, index: int, data: bytes, acks: int = -1
) -> None:
    def topic_data(peer: Peer) -> list[dict[str, Any]]:
        return [
            {"name": name, "topic_id": peer.topic(name), "partition_data": [{"index": index, "records": data}]},
        ]

    both.ask(ApiKey.PRODUCE, version, label, acks=acks, timeout_ms=9_000, topic_data=topic_data)


def until(both: Both, key: int, version: int, fields: dict[str, Any]) -> None:
    """Ask until both have what they need for it: a coordinator, a block of ids."""
    deadline = time.monotonic() + 60
    for peer in (both.kafka, both.klamm):
        while peer.ask(key, version, fields)["error_code"] != "NONE":
            assert time.monotonic() < deadline, (key, fields)
            time.sleep(0.05)


def find_coordinator(both: Both) -> None:
    """Until both have one for groups, which has loaded the only partition of its log."""
    until(both, 10, 3, {"key": "g", "key_type": 0})
    until(both, 9, 5, {"group_id": "g", "topics": None})


def offsets(both: Both) -> None:
    """ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

    def listed(name: str, index: int, timestamp: int, epoch: int = -1) -> dict[str, Any]:
        partition = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
        return {"name": name, "partitions": [partition]}

    for isolation in (0, 1):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 999, 1_001, 5_000):
            for name in ("p3", "empty"):
                asked = {"topics": [listed(name, 0, timestamp)], "isolation_level": isolation}
                both.every(
                    ApiKey.LIST_OFFSETS,
                    f"{timestamp} of {name}, {isolation=}",
                    replica_id=-1,
                    timeout_ms=9_000,
                    **asked,
                )
    for name, index in (("p3", 9), ("nope", 0), ("a b", 0)):
        both.every(
            ApiKey.LIST_OFFSETS, f"{name}-{index}", replica_id=-1, topics=[listed(name, index, -1)], timeout_ms=9_000
        )
    for epoch in (0, 9):
        both.every(
            ApiKey.LIST_OFFSETS, f"epoch {epoch}", replica_id=-1, topics=[listed("p3", 0, -1, epoch)], timeout_ms=9_000
        )
        for wanted in (0, 5, -1):
            partition = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": wanted}
            asked = {"topics": [{"topic": "p3", "partitions": [partition]}], "replica_id": -1}
            both.every(ApiKey.OFFSET_FOR_LEADER_EPOCH, f"end of {wanted}, epoch {epoch}", **asked)
    for name, index, offset in (
        *(("p5", 0, offset) for offset in (1, 4, 2, -1, 9_999, -2)),
        *(("keys", 0, 0), ("nope", 0, 0), ("a b", 0, 0), ("p5", 9, 0)),
    ):
        partition = {"partition_index": index, "offset": offset}
        asked = {"topics": [{"name": name, "partitions": [partition]}], "timeout_ms": 9_000}
        both.every(ApiKey.DELETE_RECORDS, f"{name}-{index} to {offset}", **asked)
    both.every(ApiKey.LIST_OFFSETS, "after", replica_id=-1, topics=[listed("p5", 0, -2)], timeout_ms=9_000)


def fetches(both: Both) -> None:
    """Fetch, and its sessions."""

    def at(name: str, index: int, offset: int, **more: int) -> Callable[[Peer], list[dict[str, Any]]]:
        partition = {"partition": index, "fetch_offset": offset, "current_leader_epoch": -1, "last_fetched_epoch": -1}
        wanted = partition | {"log_start_offset": -1, "partition_max_bytes": 1 << 20} | more
        return lambda peer: [{"topic": name, "topic_id": peer.topic(name), "partitions": [wanted]}]

    def fetch(label: str, topics: Any, **more: Any) -> None:
        limits = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
        asked = {"replica_id": -1, "session_id": 0, "session_epoch": -1, "topics": topics, **limits, **more}
        both.every(ApiKey.FETCH, label, **asked)

    fetch("the start", at("p4", 0, 0))
    fetch("the middle", at("p4", 0, 4))
    fetch("the end", at("p4", 1, 3))
    fetch("as a replica", at("p4", 0, 0), below=16, replica_id=5, replica_state={"replica_id": 5, "replica_epoch": -1})
    fetch("an epoch that never was", at("p4", 0, 3, last_fetched_epoch=7))
    fetch("committed only", at("p4", 0, 0), isolation_level=1)
    fetch("behind the end", at("p4", 0, 9_999))
    fetch("a negative offset", at("p4", 0, -1))
    fetch("before the start", at("p5", 0, 0))
    fetch("one byte", at("p4", 0, 0), max_bytes=1)
    fetch("one byte of a partition", at("p4", 0, 0, partition_max_bytes=1))
    fetch("an epoch that is not yet", at("p4", 0, 0, current_leader_epoch=5))
    fetch("an epoch that is", at("p4", 0, 3, last_fetched_epoch=0))
    small = {"partition_max_bytes": 1}
    fetch("one batch of two partitions", lambda peer: at("p4", 0, 0, **small)(peer) + at("p3", 0, 0, **small)(peer))
    fetch("unknown topic", at("nope", 0, 0))
    fetch("unknown partition", at("p4", 9, 0))
    fetch("nothing", [])
    fetch("an unknown session", at("p4", 0, 0), since=7, session_id=12_345, session_epoch=1)
    fetch("a session that is none", at("p4", 0, 0), since=7, session_epoch=3)
    for version in versions(ApiKey.FETCH, 7):
        limits = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20, "replica_id": -1}
        both.ask(
            ApiKey.FETCH, version, "open a session", topics=at("p4", 0, 0), session_id=0, session_epoch=0, **limits
        )
        kept = {peer: peer.last["session_id"] for peer in (both.kafka, both.klamm)}
        limits |= {"session_id": lambda peer, kept=kept: kept[peer]}
        both.ask(ApiKey.FETCH, version, "go on with it", topics=[], session_epoch=1, **limits)
        both.ask(ApiKey.FETCH, version, "add to it", topics=at("p4", 1, 0), session_epoch=2, **limits)
        forgotten = {
            "forgotten_topics_data": lambda peer: [{"topic": "p4", "topic_id": peer.topic("p4"), "partitions": [0]}]
        }
        both.ask(ApiKey.FETCH, version, "take from it", topics=[], session_epoch=3, **limits, **forgotten)
        both.ask(ApiKey.FETCH, version, "a wrong epoch", topics=[], session_epoch=9, **limits)
        both.ask(ApiKey.FETCH, version, "close it", topics=[], session_epoch=-1, **limits)


def repeats(both: Both) -> None:
    """Topics and partitions that one request names more than once."""
    names = [f"r{version}" for version in versions(ApiKey.PRODUCE)]
    both.ask(ApiKey.CREATE_TOPICS, 7, "for repeats", topics=[*map(new_topic, names)], timeout_ms=9_000)
    both.learn_topics()
    orders: dict[str, list[tuple[str, list[int]]]] = {
        "twice in a row": [("", [0, 0])],
        "a topic twice": [("", [0]), ("", [1])],
        "a partition in two entries": [("", [0, 1]), ("", [1])],
        "another topic between": [("", [0]), ("p4", [0]), ("", [1])],
        "a partition around another topic": [("", [0]), ("p4", [0, 1]), ("", [0])],
        "an unknown topic twice": [("nope", [0]), ("p4", [0]), ("nope", [0, 1])],
        "an empty entry": [("", []), ("", [0])],
        "empty entries": [("p4", []), ("", [0]), ("p4", [])],
        "unknown partitions": [("", [9]), ("", [0, 9])],
    }
    for label, order in orders.items():
        repeated_produce(both, label, order)
        named = [(name or "p5", indexes) for name, indexes in order]
        asked = {"current_leader_epoch": -1, "timestamp": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
        fetch = asked | {"fetch_offset": 1, "partition_max_bytes": 1 << 20}
        both.every(
            1,
            label,
            replica_id=-1,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=lambda peer, named=named, fetch=fetch: [
                {
                    "topic": name,
                    "topic_id": peer.topic(name),
                    "partitions": [fetch | {"partition": index} for index in indexes],
                }
                for name, indexes in named
            ],
        )

        def by(index: str, *, named: Any = named, **fields: Any) -> list[dict[str, Any]]:
            return [
                {"name": name, "topic": name, "partitions": [fields | {index: one} for one in indexes]}
                for name, indexes in named
            ]

        both.every(ApiKey.LIST_OFFSETS, label, replica_id=-1, timeout_ms=9_000, topics=by("partition_index", **asked))
        both.every(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            label,
            replica_id=-1,
            topics=by("partition", current_leader_epoch=-1, leader_epoch=0),
        )
        both.every(ApiKey.DELETE_RECORDS, label, timeout_ms=9_000, topics=by("partition_index", offset=1))
        producers = [{"name": name, "partition_indexes": indexes} for name, indexes in named]
        both.every(ApiKey.DESCRIBE_PRODUCERS, label, topics=producers)
        both.every(ApiKey.METADATA, label, topics=[{"name": name, "topic_id": None} for name, _ in named], since=1)
        both.every(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            label,
            topics=[{"name": name} for name, _ in named],
            response_partition_limit=2_000,
        )
    repeated_batches(both)
    repeated_names(both)


def repeated_produce(both: Both, label: str, order: list[tuple[str, list[int]]]) -> None:
    """Topics and partitions that one Produce names more than once; "" is a topic for each version."""
    for version in versions(ApiKey.PRODUCE):
        named = [(name or f"r{version}", indexes) for name, indexes in order]
        for acks in (1, -1):  # the last leaves nothing that is not to be read yet
            both.ask(
                0,
                version,
                f"{label}, {acks=}",
                acks=acks,
                timeout_ms=9_000,
                topic_data=lambda peer, named=named: [
                    {
                        "name": name,
                        "topic_id": peer.topic(name),
                        "partition_data": [{"index": index, "records": batch()} for index in indexes],
                    }
                    for name, indexes in named
                ],
            )


def repeated_batches(both: Both) -> None:
    """Of a partition that a Produce names twice, bytes that are no batch count before a batch that is appended."""
    whole = batch()
    data = {
        "good": whole,
        "damaged": whole[:-1] + bytes([whole[-1] ^ 1]),
        "magic 1": whole[:16] + b"\1" + whole[17:],
        "magic 3": whole[:16] + b"\3" + whole[17:],
        "nothing": b"",
        "two": whole * 2,
    }
    for version in (3, 9, 13):
        for labels in (*itertools.product(data, data), ("magic 1", "good", "damaged"), ("damaged", "magic 1", "good")):
            for name, index, acks in (("r3", 0, -1), ("r3", 0, 7), ("r3", 9, 1), ("nope", 0, 1)):
                both.ask(
                    0,
                    version,
                    f"{labels} to {name}-{index}, {acks=}",
                    acks=acks,
                    timeout_ms=9_000,
                    topic_data=lambda peer, named=(("r4", 0, "good"), *((name, index, label) for label in labels)): [
                        {
                            "name": name,
                            "topic_id": peer.topic(name),
                            "partition_data": [{"index": index, "records": data[label]}],
                        }
                        for name, index, label in named
                    ],
                )


def repeated_names(both: Both) -> None:
    """The same in what is no bulk."""
    find_coordinator(both)
    long = "m" * 5_000
    orders: dict[str, list[tuple[str, list[tuple[int, int, str | None]]]]] = {
        "twice": [("c2", [(0, 5, "a"), (0, 6, "b")])],
        "twice, the first refused": [("c2", [(0, 5, long), (0, 6, "b")])],
        "twice, the second refused": [("c2", [(0, 5, "b"), (0, 6, long)])],
        "in two entries": [("c2", [(0, 5, "a")]), ("c2", [(0, 7, None)])],
        "around another topic": [("c2", [(0, 5, "a")]), ("c3", [(1, 9, "b")]), ("c2", [(1, 8, "b")])],
        "an unknown topic twice": [("nope", [(0, 5, "a")]), ("c3", [(1, 9, "b")]), ("nope", [(1, 9, "b")])],
        "an unknown partition twice": [("c2", [(99, 5, "a"), (99, 5, "a"), (0, 6, "x")]), ("c2", [(99, 1, "")])],
        "entries without partitions": [("c2", []), ("c2", [(0, 1, "")]), ("nope", []), ("c3", [])],
        "nothing but an empty entry": [("c2", [])],
    }
    for label, order in orders.items():
        for version in versions(ApiKey.OFFSET_COMMIT):
            both.ask(
                8,
                version,
                f"commit, {label}",
                group_id=f"repeats{version}",
                member_id="",
                generation_id=-1,
                generation_id_or_member_epoch=-1,
                retention_time_ms=-1,
                topics=lambda peer, order=order: [
                    {
                        "name": name,
                        "topic_id": peer.topic(name),
                        "partitions": [
                            {
                                "partition_index": index,
                                "committed_offset": offset,
                                "committed_metadata": text,
                                "committed_leader_epoch": -1,
                            }
                            for index, offset, text in partitions
                        ],
                    }
                    for name, partitions in order
                ],
            )

        def fetched_by(version: int, order: Any = order) -> dict[str, Any]:
            def topics_of(peer: Peer) -> list[dict[str, Any]]:
                return [
                    {"name": name, "topic_id": peer.topic(name), "partition_indexes": [one[0] for one in partitions]}
                    for name, partitions in order
                ]

            if version < 8:
                return {"group_id": "repeats9", "topics": topics_of}
            names = ("repeats9", "repeats9", "nobody")
            return {
                "groups": lambda peer: [
                    {"group_id": name, "topics": topics_of(peer), "member_epoch": -1} for name in names
                ]
            }

        both.every(ApiKey.OFFSET_FETCH, f"fetch, {label}", own=fetched_by)
        gone = [{"name": name, "partitions": [{"partition_index": one[0]} for one in part]} for name, part in order]
        both.every(ApiKey.OFFSET_DELETE, f"delete, {label}", group_id="repeats3", topics=gone)
    repeated_admin(both)


def repeated_admin(both: Both) -> None:
    """The same in requests of admin clients."""
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    both.every(
        ApiKey.LIST_OFFSETS,
        "no such level",
        replica_id=-1,
        isolation_level=5,
        topics=[{"name": "c2", "partitions": [asked] * 2}],
    )
    some = [{"topic": "c2", "partitions": [0, 0, 99, 99]}, {"topic": "c2", "partitions": [0]}]
    both.every(ApiKey.ELECT_LEADERS, "twice", topic_partitions=some, timeout_ms=9_000, election_type=0)
    both.every(ApiKey.DESCRIBE_LOG_DIRS, "twice", topics=some)
    for label, names in (("unknown", ["nope"] * 3), ("known", ["r5", "r6", "r5"]), ("nameless", [""] * 2)):
        grown = [{"name": name, "count": 3 + at, "assignments": None} for at, name in enumerate(names)]
        both.every(ApiKey.CREATE_PARTITIONS, f"twice, {label}", topics=grown, timeout_ms=9_000, validate_only=False)
    for version in versions(ApiKey.DELETE_TOPICS):
        names = ["r7", "nope", "r7", "nope", "r7"]
        both.ask(
            ApiKey.DELETE_TOPICS,
            version,
            "twice",
            topic_names=names,
            topics=[{"name": one} for one in names],
            timeout_ms=9_000,
        )
    by_both = lambda peer: [{"name": "r7"}, {"name": None, "topic_id": peer.topic("r7")}]  # noqa: E731
    both.ask(ApiKey.DELETE_TOPICS, 6, "by name and by id", topics=by_both, timeout_ms=9_000)
    both.ask(ApiKey.DELETE_TOPICS, 6, "ids twice", topics=lambda peer: by_both(peer)[1:] * 2, timeout_ms=9_000)


def groups(both: Both) -> None:
    """The APIs of classic groups. A group that is not there, one that lives, and admin commits."""
    find_coordinator(both)
    for kind, key in ((0, "g"), (0, ""), (2, "x"), (3, "x")):
        both.every(ApiKey.FIND_COORDINATOR, f"type {kind} {key!r}", key=key, coordinator_keys=[key, "h"], key_type=kind)
    for version in versions(ApiKey.JOIN_GROUP):
        one_life(both, version, f"group{version}")
    both.every(ApiKey.LIST_GROUPS, "all", states_filter=[], types_filter=[])
    for state in ("Stable", "empty", "Dead", "Nope"):
        both.every(ApiKey.LIST_GROUPS, f"state {state}", since=4, states_filter=[state], types_filter=[])
    for kind in ("classic", "Consumer", "nope"):
        both.every(ApiKey.LIST_GROUPS, f"type {kind}", since=5, states_filter=[], types_filter=[kind])
    for version in versions(ApiKey.OFFSET_COMMIT):
        commit(both, version, "without members", f"admin{version}", "", -1)
    for asked, name, indexes in (("some", "c2", [0, 1, 5]), ("of an unknown topic", "nope", [0])):
        both.every(
            ApiKey.OFFSET_FETCH, asked, own=lambda version, name=name, at=indexes: fetched(version, "admin9", name, at)
        )
    both.every(ApiKey.OFFSET_FETCH, "of no group", own=lambda version: fetched(version, "nobody", "c2", [0]))
    both.every(ApiKey.OFFSET_FETCH, "all", since=2, own=lambda version: fetched(version, "admin9", None, []))
    gone = [{"name": "c2", "partitions": [{"partition_index": 0}, {"partition_index": 7}]}]
    for name in ("admin8", "nobody", "", "group9"):
        both.every(ApiKey.OFFSET_DELETE, f"of {name!r}", group_id=name, topics=gone)
    for version in versions(ApiKey.DELETE_GROUPS):
        both.ask(ApiKey.DELETE_GROUPS, version, "several", groups_names=[f"admin{version + 2}", "group9", "nobody", ""])


def fetched(version: int, group: str, topic: str | None, indexes: list[int]) -> dict[str, Any]:
    def topics_of(peer: Peer) -> list[dict[str, Any]] | None:
        if topic is None:
            return None
        return [{"name": topic, "topic_id": peer.topic(topic), "partition_indexes": indexes}]

    if version < 8:
        return {"group_id": group, "topics": topics_of}
    return {"groups": lambda peer: [{"group_id": group, "topics": topics_of(peer), "member_epoch": -1}]}


def commit(  # noqa: PLR0917
    both: Both, version: int, label: str, group: str, member: Any, generation: int
) -> None:
    def topics_of(peer: Peer) -> list[dict[str, Any]]:
        offset = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m", "committed_leader_epoch": -1}
        return [{"name": "c2", "topic_id": peer.topic("c2"), "partitions": [offset]}]

    both.ask(
        8,
        version,
        f"commit {label}",
        group_id=group,
        member_id=member,
        generation_id=generation,
        generation_id_or_member_epoch=generation,
        retention_time_ms=-1,
        topics=topics_of,
    )


def one_life(both: Both, version: int, group: str) -> None:
    """A member joins, syncs, beats, commits and leaves, by about the same version of each API."""
    protocols = [{"name": "range", "metadata": b"\0\0"}]
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 5_000}
    joining = {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}
    for label, more in (
        ("too short", {"session_timeout_ms": 1}),
        ("too long", {"session_timeout_ms": 10**8}),
        ("no protocols", {"protocols": []}),
        ("no type", {"protocol_type": ""}),
        ("no group", {"group_id": ""}),
        ("unknown member", {"member_id": "x"}),
    ):
        both.ask(ApiKey.JOIN_GROUP, version, f"join, {label}", **joining | more)
    members = {}

    def member(peer: Peer) -> Any:
        return members[peer]

    answer = both.ask(ApiKey.JOIN_GROUP, version, "join", **joining)
    members |= {peer: peer.last["member_id"] for peer in (both.kafka, both.klamm)}
    if answer["error_code"] == "MEMBER_ID_REQUIRED":
        answer = both.ask(ApiKey.JOIN_GROUP, version, "join with an id", **joining | {"member_id": member})
    generation = answer["generation_id"]
    beat = {"group_id": group, "generation_id": generation}
    sync = beat | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    low = {
        key: min(version, VERSIONS[key][1])
        for key in (ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS)
    }
    both.ask(ApiKey.SYNC_GROUP, low[ApiKey.SYNC_GROUP], "sync, unknown member", **sync, member_id="x")
    both.ask(
        ApiKey.SYNC_GROUP,
        low[ApiKey.SYNC_GROUP],
        "sync, another generation",
        **sync | {"generation_id": 99},
        member_id=member,
    )
    both.ask(
        ApiKey.DESCRIBE_GROUPS,
        low[ApiKey.DESCRIBE_GROUPS],
        "describe before the sync",
        groups=[group],
        include_authorized_operations=True,
    )
    assigned_to = lambda peer: [{"member_id": members[peer], "assignment": b"abc"}]  # noqa: E731
    both.ask(ApiKey.SYNC_GROUP, low[ApiKey.SYNC_GROUP], "sync", **sync | {"assignments": assigned_to}, member_id=member)
    both.ask(
        ApiKey.DESCRIBE_GROUPS,
        low[ApiKey.DESCRIBE_GROUPS],
        "describe",
        groups=[group, "nobody", ""],
        include_authorized_operations=True,
    )
    both.ask(ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat", **beat, member_id=member)
    both.ask(
        ApiKey.HEARTBEAT,
        low[ApiKey.HEARTBEAT],
        "beat, another generation",
        **beat | {"generation_id": 99},
        member_id=member,
    )
    both.ask(ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat, unknown member", **beat, member_id="x")
    both.ask(
        ApiKey.HEARTBEAT, low[ApiKey.HEARTBEAT], "beat, unknown group", **beat | {"group_id": "nobody"}, member_id="x"
    )
    both.ask(ApiKey.JOIN_GROUP, version, "join with another type", **joining | {"protocol_type": "connect"})
    for at in versions(ApiKey.OFFSET_COMMIT) if version == VERSIONS[11][1] else ():
        commit(both, at, "of a member", group, member, generation)
        commit(both, at, "of another generation", group, member, 99)
        commit(both, at, "of nobody in a group that lives", group, "", -1)
    if version == VERSIONS[11][1]:
        return  # the last one stays
    for label, who in (("unknown", "x"), ("member", member), ("again", member)):
        named = lambda peer, who=who: [{"member_id": who(peer) if callable(who) else who}]  # noqa: E731
        both.ask(
            ApiKey.LEAVE_GROUP, low[ApiKey.LEAVE_GROUP], f"leave, {label}", group_id=group, member_id=who, members=named
        )
    both.ask(ApiKey.DESCRIBE_GROUPS, low[ApiKey.DESCRIBE_GROUPS], "describe the end", groups=[group])


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
