"""Changes of feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster import Cluster

from klamm.controller.features import Supporters, changed_levels
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.generated.metadata_records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from klamm.protocol.messages.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from klamm.protocol.messages.feature_updates import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from klamm.protocol.messages.registration import SupportedFeature

UP, SAFE, UNSAFE = UpgradeType


def update(cluster: Cluster, *updates: FeatureUpdateKey, validate_only: bool = False) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(updates, validate_only)
    return cluster.ask(request)


def key(feature: str, level: int, how: int = UP) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature, level, how)


def test_levels_go_up_and_down() -> None:
    cluster = Cluster({"metadata.version": 25})
    cluster.add_brokers(1)
    start = len(cluster.log)
    answer = update(cluster, key("metadata.version", 29), key("group.version", 1))
    assert answer == UpdateFeaturesResponse(
        results=(UpdatableFeatureResult("metadata.version"), UpdatableFeatureResult("group.version"))
    )
    assert update(cluster, key("group.version", 0, SAFE)).error_code is ErrorCode.NONE
    assert update(cluster, key("metadata.version", 24, SAFE)).error_code is ErrorCode.NONE
    assert cluster.records(start) == [
        FeatureLevelRecord(name="metadata.version", feature_level=29),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
        FeatureLevelRecord(name="metadata.version", feature_level=24),
    ]
    assert cluster.image.features() == {"metadata.version": 24}


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ([key("metadata.version", 31)], "Local controller 0 only supports versions 7-30"),
        ([key("metadata.version", 6, SAFE)], "Local controller 0 only supports versions 7-30"),
        ([key("no.such", 1)], "Local controller 0 does not support this feature"),
        ([key("group.version", -1, SAFE)], "Levels begin at 0"),
        ([key("group.version", 2)], "only supports versions 0-1"),
        ([key("group.version", 0)], "safe or unsafe downgrade"),
        ([key("transaction.version", 2, SAFE)], "must be upgrade"),
        ([key("group.version", 0, 0)], "is none of"),
        ([key("metadata.version", 25, SAFE)], "cannot hold would be lost"),
        ([key("metadata.version", 25, UNSAFE)], "there is no unsafe downgrade"),
        ([key("kraft.version", 2)], "only supports versions 0-1"),
        ([key("streams.version", 1)], "Broker 2 does not support this feature"),
        ([key("transaction.version", 1), key("no.such", 1)], "no.such"),
    ],
)
def test_what_is_refused(updates: list[FeatureUpdateKey], why: str) -> None:
    cluster = Cluster({"metadata.version": 30, "group.version": 1})
    cluster.add_brokers(1)
    limited = (
        SupportedFeature("metadata.version", 7, 30),
        SupportedFeature("group.version", 0, 1),
        SupportedFeature("transaction.version", 0, 2),
        SupportedFeature("kraft.version", 0, 1),
    )
    cluster.add_brokers(2, features=limited)
    end = len(cluster.log)
    answer = update(cluster, *updates)
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message is not None
    assert answer.error_message.startswith("No feature was changed")
    assert why in answer.error_message
    assert answer.results == ()
    assert len(cluster.log) == end


def test_a_level_needs_others() -> None:
    cluster = Cluster({"metadata.version": 22})
    elr = "eligible.leader.replicas.version"
    answer = update(cluster, key(elr, 1))
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert "depends on metadata.version 23" in (answer.error_message or "")
    assert update(cluster, key(elr, 1), key("metadata.version", 23)).error_code is ErrorCode.NONE


def test_eligible_leader_replicas_take_the_min_isr_from_nodes_to_the_cluster() -> None:
    cluster = Cluster(static={"min.insync.replicas": "2"})
    cluster.add_brokers(0, 1)
    for node in ("0", "1"):
        resource = AlterConfigsResource(4, node, (AlterableConfig("min.insync.replicas", "1"),))
        request = IncrementalAlterConfigsRequest((resource,))
        cluster.ask(request)
    start = len(cluster.log)
    elr = key("eligible.leader.replicas.version", 1)
    assert update(cluster, elr, validate_only=True).error_code is ErrorCode.NONE
    assert len(cluster.log) == start
    assert update(cluster, elr).error_code is ErrorCode.NONE
    assert cluster.records(start) == [
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        ConfigRecord(resource_type=4, resource_name="0", name="min.insync.replicas", value=None),
        ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value=None),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    ]
    assert cluster.image.is_elr_enabled


def test_the_old_flag_for_downgrades() -> None:
    cluster = Cluster({"metadata.version": 30, "group.version": 1})
    assert update(cluster, FeatureUpdateKey("group.version", 0)).error_code is ErrorCode.INVALID_UPDATE_VERSION
    allowed = FeatureUpdateKey("group.version", 0, allow_downgrade=True)
    assert update(cluster, allowed).error_code is ErrorCode.NONE


def test_every_voter_must_have_registered() -> None:
    supporters = Supporters(1, SUPPORTED_FEATURES, controllers={2: SUPPORTED_FEATURES}, voters=frozenset({1, 2, 3}))
    with pytest.raises(KafkaError, match="controller 3 has not registered"):
        supporters.check("group.version", 1, 30)
    supporters.check("group.version", 1, 14)


def test_an_unchanged_level() -> None:
    cluster = Cluster({"metadata.version": 30})
    for how in UpgradeType:
        assert update(cluster, key("metadata.version", 30, how)).error_code is ErrorCode.NONE
        assert update(cluster, key("kraft.version", 0, how)).error_code is ErrorCode.NONE


def test_kraft_version_is_left_to_the_quorum() -> None:
    cluster = Cluster({"metadata.version": 30})
    cluster.add_brokers(1)
    request = UpdateFeaturesRequest((key("kraft.version", 1),))
    start = len(cluster.log)
    for _ in range(2):  # the level is unchanged the second time
        assert cluster.ask(request).error_code is ErrorCode.NONE
        assert cluster.kraft_levels == [1]
        assert cluster.records(start) == [NoOpRecord()]
    answer = update(cluster, key("kraft.version", 0, SAFE))
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert "cannot be taken back" in (answer.error_message or "")


def test_the_quorum_may_reject_the_next_kraft_version() -> None:
    supporters = Supporters(0, SUPPORTED_FEATURES, kraft_refusal="controller 2 is silent")
    with pytest.raises(KafkaError, match="controller 2 is silent"):
        changed_levels([key("kraft.version", 1)], {"metadata.version": 30}, supporters)
