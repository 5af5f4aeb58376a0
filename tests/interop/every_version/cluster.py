"""Requests about the cluster, its controllers and its security."""

from __future__ import annotations

import uuid
from typing import Final

from klamm.protocol.api_key import ApiKey
from tests.interop.every_version.configs import resource
from tests.interop.every_version.topics import new_topic
from tests.interop.peers import VERSIONS, Both, Peer, versions

ANY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def controller_port(peer: Peer) -> int:
    """The port of the only voter."""
    metadata = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    [node] = peer.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": [metadata]})["nodes"]
    port: int = node["listeners"][0]["port"]
    return port


def controllers(both: Both) -> None:
    """The APIs of a controller listener, as used by tools with its address (KIP-919) and by brokers."""
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
    proposed = {
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "new_isr": [5],
        "new_isr_with_epochs": [],
    }
    topics = [{"topic_id": uuid.UUID(int=9), "partitions": [proposed]}]
    both.every(ApiKey.ALTER_PARTITION, "an unknown broker", topics=topics, **unknown)
    both.every(ApiKey.ALTER_PARTITION, "no topics", topics=[], **unknown)


def listed_versions(both: Both) -> None:
    """ApiVersions: klamm lists exactly the versions of VERSIONS, all within Kafka's ranges."""
    both.every(ApiKey.API_VERSIONS, "no name", client_software_name="me", client_software_version="1")
    both.ask(ApiKey.API_VERSIONS, 3, "a bad name", client_software_name="m e!", client_software_version="1")
    both.ask(ApiKey.API_VERSIONS, 0, "to compare")
    theirs, ours = (
        {each["api_key"]: (each["min_version"], each["max_version"]) for each in peer.last["api_keys"]}
        for peer in (both.kafka, both.klamm)
    )
    # ApiVersions lists Produce from version 0 on, for old clients, but it is served from version 3 on.
    for_clients = {key: each for key, each in VERSIONS.items() if key in theirs}
    assert ours == {**for_clients, 0: (0, VERSIONS[0][1])}
    assert ours.items() <= theirs.items()


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


def security(both: Both) -> None:
    """DescribeAcls and DescribeUserScramCredentials without an authorizer and without credentials."""
    # Version 1 has no pattern MATCH or ANY with a user resource; LITERAL is 3.
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
