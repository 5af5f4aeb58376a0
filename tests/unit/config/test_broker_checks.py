"""Changes that a node rejects without asking the controller (KIP-226)."""

from __future__ import annotations

import pytest

from klamm.config.broker_checks import check_dynamic_configs, preprocess
from klamm.config.values import NodeLayers
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
)
from klamm.protocol.resource_types import ResourceType

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
FILE = NodeLayers(static={"log.dirs": "/a,/b", "num.io.threads": "8"})


def why(configs: dict[str, str], *, is_per_broker: bool = True, layers: NodeLayers = FILE) -> str | None:
    """The message of a rejection, which is always INVALID_REQUEST; None if the change is accepted."""
    try:
        check_dynamic_configs(layers, configs, is_per_broker=is_per_broker)
    except KafkaError as error:
        return error.message if error.code is ErrorCode.INVALID_REQUEST else f"wrong code {error.code.name}"
    return None


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"node.id": "5"}, "cannot change while a broker runs: [node.id]"),
        ({"log.dirs": "/c", "num.partitions": "2"}, "[log.dirs, num.partitions]"),
        ({"ssl.keystore.location": "/x"}, "for one listener only"),
        ({"log.retention.ms": "soon"}, "log.retention.ms"),
        ({"log.cleanup.policy": "shred"}, "log.cleanup.policy"),
        ({"listener.name.x.max.connections": "many"}, "max.connections"),
        ({"num.io.threads": "3"}, "the present 8: it must be at least half"),
        ({"num.io.threads": "17"}, "the present 8: it must be at most twice"),
        ({"log.cleaner.threads": "0"}, "at least 1"),
        ({"cordoned.log.dirs": "/c"}, "[/c]"),
        ({"log.local.retention.ms": "604800001"}, "more than log.retention.ms"),
    ],
)
def test_values_that_a_node_could_not_run_with(configs: dict[str, str], reason: str) -> None:
    # Without log.retention.ms, log.local.retention.ms has no upper bound.
    layers = NodeLayers({**FILE.static, "log.retention.ms": "604800000"})
    assert reason in (why(configs, layers=layers) or "")


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"num.io.threads": "4"},
        {"num.io.threads": "16"},
        {"cordoned.log.dirs": "/b"},
        {"cordoned.log.dirs": "*"},
        {"cordoned.log.dirs": ""},
        {"unknown.to.everyone": "x"},
        {"listener.name.x.ssl.keystore.location": "/x"},
        {"leader.replication.throttled.rate": "100"},
        {"log.local.retention.ms": "-2"},
    ],
)
def test_accepted_values(configs: dict[str, str]) -> None:
    assert why(configs) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("listeners", "PLAINTEXT://:1"), ("listener.name.x.ssl.keystore.location", "/x"), ("cordoned.log.dirs", "/a")],
)
def test_configs_of_one_node_cannot_be_set_for_the_cluster(name: str, value: str) -> None:
    assert "belong to one broker" in (why({name: value}, is_per_broker=False) or "")
    assert why({name: value}) is None


def test_the_cluster_may_set_a_listeners_limits() -> None:
    assert why({"listener.name.x.max.connections": "5"}, is_per_broker=False) is None


def test_a_nodes_value_overrides_the_clusters() -> None:
    layers = NodeLayers(FILE.static, {}, {"num.io.threads": "8"})
    assert why({"num.io.threads": "100"}, is_per_broker=False, layers=layers) is None


def resource(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> AlterConfigsResource:
    configs = tuple(AlterableConfig(key, value, operation) for key, operation, value in changes)
    return AlterConfigsResource(resource_type, name, configs)


def test_valid_changes_are_forwarded_and_others_answered_in_order() -> None:
    good = resource(ResourceType.TOPIC, "foo", ("retention.ms", SET, "whatever the controller says"))
    resources = (
        resource(ResourceType.TOPIC, "twice"),
        good,
        resource(ResourceType.BROKER, "2", ("background.threads", SET, "5")),
        resource(ResourceType.BROKER, "one", ("background.threads", SET, "5")),
        resource(ResourceType.TOPIC, "twice"),
        resource(ResourceType.GROUP, "g", ("a", SET, None)),
        resource(ResourceType.GROUP, "h", ("a", DELETE, None)),
        resource(ResourceType.GROUP, "i", ("a", SET, "1"), ("a", SET, "2")),
        resource(99, "x"),
        resource(ResourceType.BROKER, "1", ("log.cleanup.policy", APPEND, "compact")),
        resource(ResourceType.BROKER, "", ("background.threads", APPEND, "5")),
        resource(ResourceType.BROKER, "", ("no.such", SUBTRACT, "5")),
        resource(ResourceType.BROKER, "1", ("background.threads", 7, "5")),
    )
    found = preprocess(resources, 1, FILE, is_incremental=True)
    assert found.forward == (good, resources[6])
    invalid, request = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
    assert {place: error.code for place, error in found.errors.items()} == {
        0: request, 2: request, 3: request, 4: request, 5: request, 7: request, 8: request,
        9: request, 10: request, 11: request, 12: request,
    }  # fmt: skip
    alone = preprocess(resources[10:11], 1, FILE, is_incremental=True)
    assert [error.code for error in alone.errors.values()] == [invalid]


def test_increments_extend_stored_configs_and_replacements_do_not() -> None:
    layers = NodeLayers(FILE.static, {}, {"num.io.threads": "16"})
    same = (resource(ResourceType.BROKER, "1", ("num.io.threads", SET, "16")),)
    assert not preprocess(same, 1, layers, is_incremental=True).errors
    other = (resource(ResourceType.BROKER, "1", ("background.threads", SET, "5")),)
    assert not preprocess(other, 1, layers, is_incremental=True).errors
    # Replacing all configs resets num.io.threads from 16 to the file's 8, i.e. to half, which is allowed.
    assert not preprocess(other, 1, layers, is_incremental=False).errors
    more = NodeLayers(FILE.static, {}, {"num.io.threads": "17"})
    assert preprocess(other, 1, more, is_incremental=False).errors == {}
    most = NodeLayers(FILE.static, {}, {"num.io.threads": "18"})
    assert [error.code for error in preprocess(other, 1, most, is_incremental=False).errors.values()] == [
        ErrorCode.INVALID_REQUEST
    ]
