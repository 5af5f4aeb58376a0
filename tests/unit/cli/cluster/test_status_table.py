"""The rows of `klamm cluster status`."""

from __future__ import annotations

from pathlib import Path

from klamm.admin.cluster import Broker, ClusterState
from klamm.admin.quorum import Member, Quorum
from klamm.cli.cluster.cluster_folder import plan
from klamm.cli.cluster.status_table import NodeView, rows, summary
from klamm.config.rules import checked

CONFIGS = [checked(keys) for keys in plan(Path("/cluster"), 2, 1, 9092, {}).values()]


def view(node_id: int, pid: int | None = 7, end: str | None = None) -> NodeView:
    return NodeView(CONFIGS[node_id - 1], pid, end)


def cluster(*brokers: Broker, leader: int = 3) -> ClusterState:
    voter = Member(3, bytes(16), True, (), 9, -1, -1)
    return ClusterState("id", brokers, Quorum("id", leader, 1, 9, (voter,)), 1, 4, 2, 1)


def broker(node_id: int, *, is_fenced: bool = False) -> Broker:
    return Broker(node_id, "localhost", 9092 + node_id, None, is_fenced, 1, 4, 3)


def test_states_come_from_processes_and_the_cluster() -> None:
    nodes = {1: view(1), 2: view(2), 3: view(3)}
    found = rows(nodes, cluster(broker(1), broker(2, is_fenced=True)))
    assert [row.state for row in found] == ["serving", "fenced", "serving"]
    assert [row.roles for row in found] == ["broker", "broker", "controller (active)"]
    assert found[0][5:] == (1, 4, 3)


def test_without_an_answer_nodes_are_starting_or_stopped() -> None:
    nodes = {1: view(1), 2: view(2, None, "ended with SIGKILL: last line"), 3: view(3, None)}
    assert [row.state for row in rows(nodes, None)] == ["starting", "ended with SIGKILL: last line", "stopped"]
    assert summary(None) == "no broker answers"


def test_brokers_that_run_elsewhere_are_shown() -> None:
    [_, other] = rows({1: view(1)}, cluster(broker(1), broker(9)))
    assert (other.id, other.address, other.pid, other.state) == (9, "localhost:9101", None, "serving")


def test_the_summary_counts_partitions() -> None:
    assert summary(cluster(broker(1))) == "cluster id, topics: 1, partitions: 4, under-replicated: 2, offline: 1"
