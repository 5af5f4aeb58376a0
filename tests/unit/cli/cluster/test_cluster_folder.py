"""The files that `klamm cluster up` writes for each node."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli.cluster.cluster_folder import plan
from klamm.client import ClientError
from klamm.config.node_config import NodeConfig
from klamm.config.rules import check_supported, checked

FOLDER = Path("/cluster")


def configs(brokers: int, controllers: int | None = None, port: int = 9092, **overrides: str) -> list[NodeConfig]:
    given = {key.replace("_", "."): value for key, value in overrides.items()}
    found = [checked(keys) for keys in plan(FOLDER, brokers, controllers, port, given).values()]
    for config in found:
        check_supported(config)
    return found


def test_nodes_of_both_roles_have_ports_ten_apart() -> None:
    three = configs(3)
    assert [config.node_id for config in three] == [1, 2, 3]
    assert all(config.roles == {"broker", "controller"} for config in three)
    assert [config.client_listeners[0].port for config in three] == [9092, 9102, 9112]
    assert {config.bootstrap_controllers for config in three} == {
        (("localhost", 9093), ("localhost", 9103), ("localhost", 9113))
    }


def test_separate_controllers_come_after_the_brokers() -> None:
    nodes = configs(2, 3, 19092)
    assert [sorted(config.roles) for config in nodes] == [["broker"]] * 2 + [["controller"]] * 3
    assert [config.controller_listeners[0].port for config in nodes[2:]] == [19113, 19123, 19133]


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_topics_have_as_many_replicas_as_possible(brokers: int, replicas: int, in_sync: int) -> None:
    [config, *_] = configs(brokers)
    assert config.integer("default.replication.factor") == replicas
    assert config.integer("offsets.topic.replication.factor") == replicas
    assert config.integer("min.insync.replicas") == in_sync


def test_an_override_wins_over_defaults_but_not_over_a_nodes_identity() -> None:
    [first, second] = configs(2, min_insync_replicas="2", node_id="7")
    assert [first.integer("min.insync.replicas"), second.integer("min.insync.replicas")] == [2, 2]
    assert [first.node_id, second.node_id] == [1, 2]


def test_ports_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ClientError, match="--port 65530 leaves no ports for 3 nodes"):
        plan(FOLDER, 3, None, 65530, {})
