"""`klamm cluster`: commands start, show, enlarge and stop several processes on this machine."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.ports import free_port
from tests.support.waiting import wait_until


def klamm(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=90, check=False, env=os.environ | {"NO_COLOR": "1"}
    )


class Up:
    """`klamm cluster up` on a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port(1, 10, 11, 20, 21, 30, 31)
        self.output = folder.parent / "up.out"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "klamm", "cluster", "up", "--data", str(self.folder), *options]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def said(self) -> str:
        return self.output.read_text()

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(60)

    def status(self) -> dict[str, Any]:
        done = klamm("cluster", "status", "--data", str(self.folder), "--json")
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def states(self) -> dict[int, str]:
        return {node["id"]: node["state"] for node in self.status()["nodes"]}

    def pid(self, node_id: int) -> int:
        pids: dict[int, int] = {node["id"]: node["pid"] for node in self.status()["nodes"]}
        return pids[node_id]

    def wait_until_serving(self, *ids: int) -> None:
        wait_until(lambda: len(list(self.folder.glob("node-*/server.properties"))) == len(ids), self.said)
        wait_until(lambda: self.states() == dict.fromkeys(ids, "serving"), self.said, bound_s=60)

    def write(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for value in range(count):
            producer.produce(topic, str(value))
        assert producer.flush(30) == 0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path / "cluster")
    yield up
    klamm("cluster", "down", "--data", str(up.folder))
    if up.process is not None:
        up.process.kill()
        up.process.wait()


def test_a_cluster_is_created_enlarged_stopped_and_started_again(up: Up) -> None:
    up.start("--port", str(up.port))
    up.wait_until_serving(1, 2, 3)
    admin = AdminClient({"bootstrap.servers": up.bootstrap})
    admin.create_topics([NewTopic("orders", 4)])["orders"].result(30)
    up.write("orders", 100)

    added = klamm("cluster", "add", "--data", str(up.folder))
    assert added.returncode == 0, added.stderr
    assert f"broker 4 on localhost:{up.port + 30}" in added.stderr
    assert up.states() == dict.fromkeys((1, 2, 3, 4), "serving")
    moved = klamm("topics", "reassign", "orders", "--wait", "--bootstrap", up.bootstrap)
    assert moved.returncode == 0, moved.stderr
    status = up.status()
    assert status["cluster"] | {"clusterId": "", "activeController": 0} == {
        "clusterId": "",
        "activeController": 0,
        "topics": 1,
        "partitions": 4,
        "underReplicated": 0,
        "offline": 0,
    }
    assert [node["replicas"] for node in status["nodes"]] == [3, 3, 3, 3]

    stopped = klamm("cluster", "down", "--data", str(up.folder))
    assert stopped.returncode == 0, stopped.stderr
    assert up.wait() == 0, up.said()
    assert up.states() == dict.fromkeys((1, 2, 3, 4), "stopped")

    up.start()
    up.wait_until_serving(1, 2, 3, 4)
    read = klamm("consume", "orders", "--bootstrap", up.bootstrap)
    assert sorted(map(int, read.stdout.split())) == list(range(100)), read.stderr


def test_ctrl_c_stops_every_node(up: Up) -> None:
    up.start("--port", str(up.port), "--brokers", "2", "--controllers", "1")
    up.wait_until_serving(1, 2, 3)
    assert [node["roles"] for node in up.status()["nodes"]] == ["broker", "broker", "controller (active)"]
    assert up.process is not None
    os.kill(up.process.pid, signal.SIGINT)
    assert up.wait() == 0, up.said()
    assert set(up.states().values()) == {"stopped"}


def test_a_terminal_shows_a_table_of_the_nodes(up: Up) -> None:
    terminal, end = pty.openpty()
    words = ("cluster", "up", "--data", str(up.folder), "--port", str(up.port), "--brokers", "1")
    up.process = subprocess.Popen(
        [sys.executable, "-m", "klamm", *words],
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=end,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "140", "LINES": "40", "NO_COLOR": "1"},
    )
    os.close(end)
    shown = ""
    while "serving" not in shown:
        shown += os.read(terminal, 1 << 16).decode()
    for text in ("NODE", "ROLES", "IN SYNC", f"localhost:{up.port}", "under-replicated: 0"):
        assert text in shown, shown
    os.kill(up.process.pid, signal.SIGINT)
    while chunk := read_terminal(terminal):
        shown += chunk
    assert up.wait() == 0, shown
    os.close(terminal)


def read_terminal(terminal: int) -> str:
    """What comes next; nothing after the process has closed it."""
    try:
        return os.read(terminal, 1 << 16).decode()
    except OSError:
        return ""


def test_a_node_that_ends_is_reported_and_the_others_serve(up: Up) -> None:
    up.start("--port", str(up.port))
    up.wait_until_serving(1, 2, 3)
    os.kill(up.pid(2), signal.SIGKILL)
    wait_until(lambda: "ended with SIGKILL" in up.said(), up.said)
    wait_until(lambda: up.states() == {1: "serving", 2: "stopped", 3: "serving"}, up.said)
    klamm("cluster", "down", "--data", str(up.folder))
    assert up.wait() == 1
    assert "node 2 ended with SIGKILL" in up.said()


def test_nodes_whose_supervisor_was_killed_are_stopped(up: Up) -> None:
    up.start("--port", str(up.port))
    up.wait_until_serving(1, 2, 3)
    assert up.process is not None
    up.process.kill()
    up.wait()
    assert up.states() == dict.fromkeys((1, 2, 3), "serving")
    down = klamm("cluster", "down", "--data", str(up.folder))
    assert (down.returncode, down.stderr) == (0, "stopped: 3 nodes\n")
    assert set(up.states().values()) == {"stopped"}


def test_invalid_changes_are_rejected(up: Up) -> None:
    words = ("cluster", "up", "--data", str(up.folder))
    with socket.create_server(("localhost", up.port + 10)):
        taken = klamm(*words, "--port", str(up.port))
    assert taken.returncode == 1
    assert f"cannot listen on localhost:{up.port + 10}" in taken.stderr
    assert "--port" in taken.stderr
    assert klamm(*words, "--port", "65530").returncode == 1
    wrong = klamm(*words, "--port", str(up.port), "--override", "num.network.threads=0")
    assert wrong.returncode == 1
    assert "num.network.threads" in wrong.stderr
    missing = klamm("cluster", "status", "--data", str(up.folder))
    assert (missing.returncode, "klamm cluster up" in missing.stderr) == (1, True)

    up.start("--port", str(up.port), "--brokers", "1")
    up.wait_until_serving(1)
    second = klamm(*words)
    assert second.returncode == 1
    assert "runs already" in second.stderr
    klamm("cluster", "down", "--data", str(up.folder))
    other = klamm(*words, "--brokers", "5")
    assert other.returncode == 1
    assert "exists" in other.stderr
