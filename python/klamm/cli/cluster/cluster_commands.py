"""`klamm cluster`: run a cluster of several processes on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from klamm.admin.client import Client
from klamm.admin.cluster import ClusterState, cluster_state
from klamm.cli.cluster import status_table
from klamm.cli.cluster.cluster_folder import DEFAULT_FOLDER, ClusterFolder, addresses
from klamm.cli.cluster.status_table import SERVING, NodeView, Row
from klamm.cli.framework.command_group import Elsewhere, Group
from klamm.cli.framework.options import Option
from klamm.cli.terminal.output import AsJson, examples, print_json, print_table, say
from klamm.client import ClientError

group = Group(
    examples(
        "Run a cluster on this machine, each node in a process of its own.",
        "klamm cluster up --brokers 3",
        "klamm cluster status",
        "klamm cluster add",
        "klamm cluster down",
    ),
    {
        "up": Elsewhere(
            "klamm.cli.cluster.cluster_up:up", "Create a cluster, or start it again, and run it until Ctrl-C."
        )
    },
)

Data = Annotated[Path, Option("--data", metavar="DIR", help="The directory of the cluster.")]
ANSWER_S: Final = 5.0
SERVING_S: Final = 60.0
_LOOK_S: Final = 0.1


@group.command("status")
def status(
    *,
    data: Data = DEFAULT_FOLDER,
    wait: Annotated[bool, Option("--wait", help="Wait until every node serves requests.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of the cluster, and how its partitions are replicated.

    \b
    [bold]Examples[/bold]
      klamm cluster status
      klamm cluster status --data /tmp/cluster --json
    """
    folder = ClusterFolder(data)
    cluster, rows = _wait(folder) if wait else _look(folder)
    if as_json:
        print_json(
            {"cluster": None if cluster is None else _as_json(cluster), "nodes": [row._asdict() for row in rows]}
        )
        return
    print_table(status_table.COLUMNS, rows)
    print(status_table.summary(cluster))


@group.command("add")
def add(data: Data = DEFAULT_FOLDER) -> None:
    """Add a broker to the cluster. `klamm cluster up` starts it.

    \b
    [bold]Examples[/bold]
      klamm cluster add
      klamm topics reassign orders --wait
    """
    folder = ClusterFolder(data)
    node = folder.add_broker()
    address = addresses([node.config()])
    if folder.pid() is None:
        say(f"added: broker {node.id}; `klamm cluster up` starts it")
        return
    _wait(folder)
    say(f"added: broker {node.id} on {address}; `klamm topics reassign NAME` moves partitions to it")


@group.command("down")
def down(data: Data = DEFAULT_FOLDER) -> None:
    """Stop the cluster, brokers first. The data stays: `klamm cluster up` starts it again.

    \b
    [bold]Examples[/bold]
      klamm cluster down
    """
    folder = ClusterFolder(data)
    nodes = folder.existing()
    pid = folder.pid()
    # Nodes of their own are left where `klamm cluster up` was killed.
    pids = [pid] if pid is not None else [one for one in (node.pid() for node in nodes) if one is not None]
    if not pids:
        say("nothing runs")
        return
    for one in pids:
        os.kill(one, signal.SIGTERM)
    while folder.pid() is not None or any(node.pid() is not None for node in nodes):
        time.sleep(_LOOK_S)
    say(f"stopped: {len(nodes)} nodes")


def ask(nodes: Mapping[int, NodeView]) -> ClusterState | None:
    """The cluster as one of its brokers describes it; None if none does."""
    running = [view.config for view in nodes.values() if view.pid is not None and view.config.is_broker]
    if not running:
        return None
    try:
        with Client(addresses(running), timeout_s=ANSWER_S) as client:
            return cluster_state(client)
    except ClientError:
        return None


def _look(folder: ClusterFolder) -> tuple[ClusterState | None, list[Row]]:
    nodes = {node.id: NodeView(node.config(), node.pid()) for node in folder.existing()}
    cluster = ask(nodes)
    return cluster, status_table.rows(nodes, cluster)


def _wait(folder: ClusterFolder) -> tuple[ClusterState | None, list[Row]]:
    """The state when every node serves. Raises ClientError."""
    deadline = time.monotonic() + SERVING_S
    while not folder.nodes() and time.monotonic() < deadline:  # `klamm cluster up` has just begun
        time.sleep(_LOOK_S)
    while True:
        cluster, rows = _look(folder)
        others = [row for row in rows if row.state != SERVING]
        if not others:
            return cluster, rows
        if time.monotonic() > deadline:
            states = ", ".join(f"node {row.id} ({row.state})" for row in others)
            raise ClientError(f"not serving after {SERVING_S:.0f} s: {states}; see output.log in the node's folder")
        time.sleep(_LOOK_S)


def _as_json(cluster: ClusterState) -> dict[str, Any]:
    return {
        "clusterId": cluster.cluster_id,
        "activeController": cluster.quorum.leader_id,
        "topics": cluster.topics,
        "partitions": cluster.partitions,
        "underReplicated": cluster.under_replicated,
        "offline": cluster.offline,
    }
