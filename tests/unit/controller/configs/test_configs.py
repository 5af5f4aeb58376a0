"""Changes of configs: operations, checks, records (`ConfigurationControlManager`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.cluster import LATEST, WITH_ELR, Cluster

from klamm.config.broker_checks import changed_list
from klamm.controller.configs.configs import Changes
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.generated.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.resource_types import ResourceType

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
TOPIC, BROKER, LOGGER, METRICS, GROUP = ResourceType


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(0, 1)
    cluster.create_assigned("foo", [0], retention_ms="1000", cleanup_policy="compact")
    return cluster


def change(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    configs = tuple(AlterableConfig(key, value, operation) for key, operation, value in changes)
    return AlterConfigsResource(resource_type, name, configs)


def alter(
    cluster: Cluster, *resources: AlterConfigsResource, validate_only: bool = False
) -> tuple[AlterConfigsResourceResponse, ...]:
    request = IncrementalAlterConfigsRequest(resources, validate_only)
    return cluster.ask(request).responses


def replace_all(cluster: Cluster, resource_type: int, name: str, **values: str) -> AlterConfigsResourceResponse:
    configs = tuple(AlterableConfig(key.replace("_", "."), value) for key, value in values.items())
    request = AlterConfigsRequest((AlterConfigsResource(resource_type, name, configs),))
    (response,) = cluster.ask(request).responses
    return response


def code_of(
    cluster: Cluster, *changes: tuple[str, int, str | None], place: tuple[int, str] = (TOPIC, "foo")
) -> ErrorCode:
    end = len(cluster.log)
    (response,) = alter(cluster, change(*place, *changes))
    assert (response.error_code is ErrorCode.NONE) or len(cluster.log) == end, "what is refused leaves no record"
    assert (response.error_message is None) == (response.error_code is ErrorCode.NONE)
    return response.error_code


def record(resource_type: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


def test_set_and_delete(cluster: Cluster) -> None:
    start = len(cluster.log)
    changes = [("retention.ms", SET, "5"), ("cleanup.policy", DELETE, None), ("segment.ms", SET, "9")]
    assert code_of(cluster, *changes) is ErrorCode.NONE
    assert cluster.records(start) == [
        record(TOPIC, "foo", "retention.ms", "5"),
        record(TOPIC, "foo", "cleanup.policy", None),
        record(TOPIC, "foo", "segment.ms", "9"),
    ]
    assert cluster.image.configs(TOPIC, "foo") == {"retention.ms": "5", "segment.ms": "9"}


def test_unchanged_values_are_written_for_nodes_only(cluster: Cluster) -> None:
    start = len(cluster.log)
    code_of(cluster, ("retention.ms", SET, "1000"), ("segment.ms", DELETE, None))
    assert cluster.records(start) == []
    for _ in range(2):
        code_of(cluster, ("background.threads", SET, "5"), place=(BROKER, "1"))
    assert cluster.records(start) == [record(BROKER, "1", "background.threads", "5")] * 2


def test_lists_grow_and_shrink(cluster: Cluster) -> None:
    code_of(cluster, ("cleanup.policy", APPEND, "delete"))
    assert cluster.image.configs(TOPIC, "foo")["cleanup.policy"] == "compact,delete"
    code_of(cluster, ("cleanup.policy", APPEND, "delete,compact"))
    assert cluster.image.configs(TOPIC, "foo")["cleanup.policy"] == "compact,delete"
    code_of(cluster, ("cleanup.policy", SUBTRACT, "compact,compact"))
    assert cluster.image.configs(TOPIC, "foo")["cleanup.policy"] == "delete"
    code_of(cluster, ("cleanup.policy", SUBTRACT, "delete"))
    assert cluster.image.configs(TOPIC, "foo")["cleanup.policy"] == "", "empty is not the default"


def test_appending_begins_with_the_default(cluster: Cluster) -> None:
    cluster.create_assigned("bar", [0])
    code_of(cluster, ("cleanup.policy", APPEND, "compact"), place=(TOPIC, "bar"))
    assert cluster.image.configs(TOPIC, "bar") == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("place", "changes", "code"),
    [
        ((TOPIC, "foo"), [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("no.such", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("no.such", SET, "5")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("retention.ms", SET, "1e3")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("min.cleanable.dirty.ratio", SET, "1.1")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("preallocate", SET, "yes")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("compression.type", SET, "none")], ErrorCode.INVALID_CONFIG),
        (
            (TOPIC, "foo"),
            [("max.compaction.lag.ms", SET, "3"), ("min.compaction.lag.ms", SET, "4")],
            ErrorCode.INVALID_CONFIG,
        ),
        ((TOPIC, "foo"), [("min.insync.replicas", SET, "0")], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("follower.replication.throttled.replicas", SET, "x" * 32_768)], ErrorCode.INVALID_CONFIG),
        ((TOPIC, "foo"), [("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST),
        ((TOPIC, "bar"), [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, ""), [("retention.ms", SET, "5")], ErrorCode.INVALID_REQUEST),
        ((TOPIC, "a b"), [("retention.ms", SET, "5")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((BROKER, "x"), [("background.threads", SET, "5")], ErrorCode.INVALID_REQUEST),
        ((BROKER, "-1"), [("background.threads", SET, "5")], ErrorCode.INVALID_REQUEST),
        ((BROKER, "99999999999"), [("background.threads", SET, "5")], ErrorCode.INVALID_REQUEST),
        ((BROKER, "7"), [("background.threads", SET, "5")], ErrorCode.BROKER_ID_NOT_REGISTERED),
        ((METRICS, ""), [("interval.ms", SET, "500")], ErrorCode.INVALID_REQUEST),
        ((METRICS, "m"), [("no.such", SET, "500")], ErrorCode.INVALID_REQUEST),
        ((METRICS, "m"), [("interval.ms", SET, "99")], ErrorCode.INVALID_REQUEST),
        ((METRICS, "m"), [("interval.ms", SET, "3600001")], ErrorCode.INVALID_REQUEST),
        ((METRICS, "m"), [("interval.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ((METRICS, "m"), [("match", SET, "client_id")], ErrorCode.INVALID_CONFIG),
        ((METRICS, "m"), [("match", SET, "client_id=[")], ErrorCode.INVALID_CONFIG),
        ((METRICS, "m"), [("match", SET, "colour=red")], ErrorCode.INVALID_CONFIG),
        ((GROUP, ""), [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.INVALID_REQUEST),
        ((GROUP, "g"), [("no.such", SET, "1")], ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), [("consumer.session.timeout.ms", SET, "44999")], ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), [("consumer.session.timeout.ms", SET, "60001")], ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), [("consumer.heartbeat.interval.ms", SET, "4999")], ErrorCode.INVALID_CONFIG),
        ((GROUP, "g"), [("streams.num.standby.replicas", SET, "3")], ErrorCode.INVALID_CONFIG),
        ((LOGGER, "1"), [("klamm", SET, "INFO")], ErrorCode.INVALID_REQUEST),
        ((0, "x"), [("a", SET, "b")], ErrorCode.UNSUPPORTED_VERSION),
        ((3, "x"), [("a", SET, "b")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_is_refused(
    cluster: Cluster, place: tuple[int, str], changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert code_of(cluster, *changes, place=place) is code


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ((METRICS, "m"), "interval.ms", "100"),
        ((METRICS, "m"), "match", "client_id=a.*,client_software_name=Java"),
        ((METRICS, "m"), "metrics", "org.apache.kafka.producer.,*"),
        ((GROUP, "g"), "consumer.session.timeout.ms", "60000"),
        ((GROUP, "g"), "share.auto.offset.reset", "by_duration:PT1H"),
        ((BROKER, ""), "log.retention.ms", "5"),
        ((BROKER, "0"), "log.retention.ms", "5"),
    ],
)
def test_configs_of_other_resources(cluster: Cluster, place: tuple[int, str], key: str, value: str) -> None:
    assert code_of(cluster, (key, SET, value), place=place) is ErrorCode.NONE
    assert cluster.image.configs(*place) == {key: value}


def test_a_value_is_checked_with_stored_ones(cluster: Cluster) -> None:
    code_of(cluster, ("max.compaction.lag.ms", SET, "100"))
    assert code_of(cluster, ("min.compaction.lag.ms", SET, "101")) is ErrorCode.INVALID_CONFIG
    assert code_of(cluster, ("min.compaction.lag.ms", SET, "100")) is ErrorCode.NONE


def test_a_value_is_checked_with_the_nodes_own() -> None:
    cluster = Cluster(static={"log.cleaner.max.compaction.lag.ms": "100"})
    cluster.add_brokers(0)
    cluster.create_assigned("foo", [0])
    assert code_of(cluster, ("min.compaction.lag.ms", SET, "101")) is ErrorCode.INVALID_CONFIG


def test_one_wrong_resource_does_not_stop_the_others(cluster: Cluster) -> None:
    responses = alter(
        cluster,
        change(TOPIC, "foo", ("retention.ms", SET, "7")),
        change(TOPIC, "bar", ("retention.ms", SET, "7")),
        change(GROUP, "g", ("share.isolation.level", SET, "read_committed")),
        change(GROUP, "twice"),
        change(GROUP, "twice"),
    )
    assert [(each.resource_name, each.error_code) for each in responses] == [
        ("foo", ErrorCode.NONE),
        ("bar", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("g", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert cluster.image.configs(TOPIC, "foo")["retention.ms"] == "7"


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    end = len(cluster.log)
    (good,) = alter(cluster, change(TOPIC, "foo", ("retention.ms", SET, "7")), validate_only=True)
    (bad,) = alter(cluster, change(TOPIC, "foo", ("retention.ms", SET, "x")), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    assert len(cluster.log) == end


def test_legacy_replaces_all(cluster: Cluster) -> None:
    start = len(cluster.log)
    assert replace_all(cluster, TOPIC, "foo", retention_ms="1000", segment_ms="5").error_code is ErrorCode.NONE
    assert cluster.records(start) == [
        record(TOPIC, "foo", "segment.ms", "5"),
        record(TOPIC, "foo", "cleanup.policy", None),
    ]
    assert cluster.image.configs(TOPIC, "foo") == {"retention.ms": "1000", "segment.ms": "5"}
    assert replace_all(cluster, TOPIC, "foo", segment_ms="x").error_code is ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, TOPIC, "foo").error_code is ErrorCode.NONE
    assert cluster.image.configs(TOPIC, "foo") == {}


def test_a_change_of_min_isr_clears_eligible_replicas() -> None:
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(0, 1)
    cluster.create_assigned("foo", [0, 1])
    start = len(cluster.log)
    code_of(cluster, ("min.insync.replicas", SET, "2"))
    code_of(cluster, ("min.insync.replicas", SET, "2"), place=(BROKER, ""))
    assert cluster.records(start) == [
        record(TOPIC, "foo", "min.insync.replicas", "2"),
        ClearElrRecord(topic_name="foo"),
        record(BROKER, "", "min.insync.replicas", "2"),
        ClearElrRecord(topic_name=""),
    ]


def test_with_eligible_replicas_the_min_isr_is_the_clusters() -> None:
    cluster = Cluster(WITH_ELR)
    cluster.add_brokers(0)
    for place, operation in (((BROKER, "0"), SET), ((BROKER, "0"), DELETE), ((BROKER, ""), DELETE)):
        value = "1" if operation is SET else None
        assert code_of(cluster, ("min.insync.replicas", operation, value), place=place) is ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, BROKER, "").error_code is ErrorCode.INVALID_CONFIG
    plain = Cluster()
    plain.add_brokers(0)
    assert code_of(plain, ("min.insync.replicas", SET, "1"), place=(BROKER, "0")) is ErrorCode.NONE


def test_cordoned_directories_need_their_level() -> None:
    for level, code in ((29, ErrorCode.INVALID_CONFIG), (30, ErrorCode.NONE)):
        cluster = Cluster({"metadata.version": level})
        cluster.add_brokers(0)
        assert code_of(cluster, ("cordoned.log.dirs", SET, "*"), place=(BROKER, "0")) is code


def test_a_policy_sees_requested_but_no_implied_changes() -> None:
    seen: list[tuple[Any, str, Changes]] = []

    def policy(resource_type: ResourceType, name: str, changes: Changes) -> None:
        seen.append((resource_type, name, dict(changes)))
        if changes.get("retention.ms") == "13":
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "not that number")

    cluster = Cluster(LATEST, alter_config_policy=policy)
    cluster.add_brokers(0)
    cluster.create_assigned("foo", [0], segment_ms="5")
    assert code_of(cluster, ("retention.ms", SET, "13")) is ErrorCode.POLICY_VIOLATION
    replace_all(cluster, TOPIC, "foo", retention_ms="9")
    assert seen == [
        (TOPIC, "foo", {"segment.ms": "5"}),
        (TOPIC, "foo", {"retention.ms": "13"}),
        (TOPIC, "foo", {"retention.ms": "9"}),
    ]
    assert cluster.image.configs(TOPIC, "foo") == {"retention.ms": "9"}


def test_an_inactive_controller_says_so_for_every_resource(cluster: Cluster) -> None:
    cluster.controller.on_not_leader(cluster.now_ms)
    for response in alter(cluster, change(TOPIC, "foo"), change(GROUP, "g")):
        assert response.error_code is ErrorCode.NOT_CONTROLLER
    assert replace_all(cluster, TOPIC, "foo").error_code is ErrorCode.NOT_CONTROLLER


ITEMS = st.lists(st.sampled_from("abcde"), max_size=5)


@settings(max_examples=200, deadline=None)
@given(ITEMS, ITEMS)
def test_lists_are_changed_as_sets_in_order(current: list[str], items: list[str]) -> None:
    start = list(dict.fromkeys(current))
    text = ",".join(start)
    appended = changed_list(APPEND, text, ",".join(items))
    assert [part for part in appended.split(",") if part] == list(dict.fromkeys([*start, *filter(None, items)]))
    subtracted = changed_list(SUBTRACT, text, ",".join(items))
    assert [part for part in subtracted.split(",") if part] == [part for part in start if part not in items]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_either_stored_or_rejected(text: str) -> None:
    cluster = Cluster()
    cluster.add_brokers(0)
    cluster.create_assigned("foo", [0])
    for key in ("retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio", "preallocate", "compression.type"):
        code = code_of(cluster, (key, SET, text))
        assert code in (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
        assert (code is ErrorCode.NONE) == (cluster.image.config(TOPIC, "foo", key) == text)
