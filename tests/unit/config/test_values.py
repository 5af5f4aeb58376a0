"""The sources of configs and their descriptions (KIP-226). tests/interop compares them with Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.config import entries
from klamm.config.keys import keys, synonyms, units
from klamm.config.values import (
    NodeLayers,
    base_name,
    effective_topic_value,
    node_values,
    topic_defaults,
)
from klamm.protocol.messages.configs import ConfigSource, DescribeConfigsResourceResult

TOPIC, NODE, CLUSTER, FILE, DEFAULT = (
    ConfigSource(1),
    ConfigSource(2),
    ConfigSource(3),
    ConfigSource(4),
    ConfigSource(5),
)
HOUR_MS = 3_600_000


def one(described: entries.Entries, name: str) -> DescribeConfigsResourceResult:
    (found,) = (entry for entry in described if entry.name == name)
    return found


def synonyms_of(described: entries.Entries, name: str) -> list[tuple[str, str | None, ConfigSource]]:
    return [(each.name, each.value, each.source) for each in one(described, name).synonyms]


ALL = entries.ConfigQuery(synonyms=True)


def test_the_strongest_layer_gives_a_topic_its_value() -> None:
    name = "log.retention.ms"
    full = NodeLayers(static={name: "3"}, cluster={name: "2"}, node={name: "1"})
    assert effective_topic_value("retention.ms", full, {"retention.ms": "0"}) == ("0", TOPIC)
    assert effective_topic_value("retention.ms", full) == ("1", NODE)
    assert effective_topic_value("retention.ms", NodeLayers({name: "3"}, {name: "2"})) == ("2", CLUSTER)
    assert effective_topic_value("retention.ms", NodeLayers({name: "3"})) == ("3", FILE)
    assert effective_topic_value("retention.ms", NodeLayers()) == ("604800000", DEFAULT)


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
        ({}, 168 * HOUR_MS),
    ],
)
def test_hours_and_minutes_become_milliseconds(static: dict[str, str], retention_ms: int) -> None:
    assert topic_defaults(NodeLayers(static))["retention.ms"] == str(retention_ms)


def test_a_dynamic_value_in_one_unit_beats_the_files_in_another() -> None:
    layers = NodeLayers({"log.roll.ms": "5"}, {"log.roll.hours": "1"})
    assert node_values(layers) == {"log.roll.hours": "1"}
    assert topic_defaults(layers)["segment.ms"] == str(HOUR_MS)


def test_every_topic_key_has_its_default_on_a_bare_node() -> None:
    for name, value in topic_defaults(NodeLayers()).items():
        assert value == keys("topic")[name].default, name


def test_every_synonym_is_a_key_of_the_node() -> None:
    names = [each.name for scope in ("topic", "group") for group in synonyms(scope).values() for each in group]
    assert len(names) > 30
    assert set(names) <= keys("node").keys()
    assert {name for group in units().values() for name in group} <= keys("node").keys()


def test_a_listeners_own_key() -> None:
    assert base_name("listener.name.internal.ssl.keystore.location") == "ssl.keystore.location"
    assert base_name("listener.name.internal.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert base_name("log.retention.ms") == "log.retention.ms"


def test_a_topic_is_described_with_all_synonyms() -> None:
    layers = NodeLayers({"log.retention.hours": "48", "log.segment.bytes": "2000000"}, {"log.retention.ms": "9"})
    described = entries.describe_topic(layers, {"retention.ms": " 7 "}, ALL)
    assert len(described) == 33
    assert synonyms_of(described, "retention.ms") == [
        ("retention.ms", "7", TOPIC),
        ("log.retention.ms", "9", CLUSTER),
        ("log.retention.hours", "48", FILE),
        ("log.retention.hours", "168", DEFAULT),
    ]
    retention, segment = one(described, "retention.ms"), one(described, "segment.bytes")
    assert (retention.value, retention.config_source, retention.config_type) == ("7", TOPIC, 5)
    assert (segment.value, segment.config_source, segment.read_only) == ("2000000", FILE, False)


def test_kafka_lists_no_synonym_of_a_key_in_another_unit() -> None:
    """The file sets hours, and retention.ms itself is not set: no synonym is listed."""
    described = entries.describe_topic(NodeLayers({"log.retention.hours": "48"}), {}, ALL)
    retention = one(described, "retention.ms")
    assert (retention.value, retention.config_source, retention.synonyms) == (str(48 * HOUR_MS), DEFAULT, ())


def test_only_requested_keys_are_described() -> None:
    wanted = entries.ConfigQuery(frozenset({"retention.ms", "nope"}), documentation=True)
    (retention,) = entries.describe_topic(NodeLayers(), {}, wanted)
    assert (retention.name, retention.synonyms) == ("retention.ms", ())
    assert retention.documentation
    assert one(entries.describe_topic(NodeLayers(), {}, entries.ConfigQuery()), "retention.ms").documentation is None


def test_internal_keys_are_shown_only_when_they_are_set() -> None:
    name = "internal.segment.bytes"
    assert name not in {entry.name for entry in entries.describe_topic(NodeLayers(), {}, ALL)}
    assert one(entries.describe_topic(NodeLayers(), {name: "100"}, ALL), name).value == "100"


def test_values_of_sensitive_keys_are_never_shown() -> None:
    secrets = {
        "ssl.key.password": "a",
        "sasl.jaas.config": "b",
        "listener.name.x.ssl.keystore.password": "c",
        "no.such.key": "d",
    }
    described = entries.describe_node(NodeLayers(secrets, node=secrets), ALL)
    for name in secrets:
        entry = one(described, name)
        assert (entry.is_sensitive, entry.value) == (True, None)
        assert {synonym.value for synonym in entry.synonyms} == {None}


def test_a_node_and_the_clusters_defaults() -> None:
    layers = NodeLayers({"num.partitions": "3"}, {"background.threads": "5"}, {"background.threads": "6"})
    node = entries.describe_node(layers, ALL)
    assert synonyms_of(node, "background.threads") == [
        ("background.threads", "6", NODE),
        ("background.threads", "5", CLUSTER),
        ("background.threads", "10", DEFAULT),
    ]
    partitions = one(node, "num.partitions")
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", FILE, True)
    assert not one(node, "background.threads").read_only
    (wide,) = entries.describe_cluster_default(layers, ALL)
    assert (wide.name, wide.value, wide.config_source) == ("background.threads", "5", CLUSTER)
    assert len(wide.synonyms) == 1


def test_groups_follow_the_node() -> None:
    layers = NodeLayers({"group.consumer.session.timeout.ms": "46000"})
    assert one(entries.describe_group(layers, {}, ALL), "consumer.session.timeout.ms").value == "46000"
    own = entries.describe_group(layers, {"consumer.session.timeout.ms": "50000"}, ALL)
    assert synonyms_of(own, "consumer.session.timeout.ms") == [
        ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "46000", FILE),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]


def test_client_metrics() -> None:
    described = entries.describe_client_metrics({"interval.ms": "500"}, ALL)
    interval, match = one(described, "interval.ms"), one(described, "match")
    assert (interval.value, interval.config_source) == ("500", ConfigSource.CLIENT_METRICS_CONFIG)
    assert (match.value, match.config_source, match.synonyms) == ("", DEFAULT, ())


LAYER = st.dictionaries(st.sampled_from(sorted(keys("node"))), st.text(max_size=5), max_size=5)


@given(LAYER, LAYER, LAYER, st.dictionaries(st.sampled_from(sorted(keys("topic"))), st.text(max_size=5), max_size=3))
def test_whatever_is_stored_can_be_described(
    static: dict[str, str], cluster: dict[str, str], node: dict[str, str], topic: dict[str, str]
) -> None:
    layers = NodeLayers(static, cluster, node)
    described = entries.describe_topic(layers, topic, ALL)
    assert {entry.name for entry in described} >= {name for name, key in keys("topic").items() if not key.is_internal}
    for entry in (*described, *entries.describe_node(layers, ALL)):
        if entry.synonyms:
            assert entry.config_source == entry.synonyms[0].source
