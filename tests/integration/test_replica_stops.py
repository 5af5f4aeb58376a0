"""A replica that has to stop ends its process at once, with the reason in the last line; an embedded one raises it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import klamm
from klamm.node.node import NodeFailedError
from klamm.raft.node import RaftNode
from tests.support.node_process import METADATA, NodeProcess
from tests.support.ports import free_port
from tests.support.waiting import wait_until

# A node whose core finds a violated invariant once the file exists, in a process with a thread that does not end, like
# an executor's that hangs in a disk call.
PROGRAM = """
import os, sys, threading, time
from klamm.raft.node import RaftNode

def broken(self, now_ms):
    if os.path.exists({trigger!r}):
        raise AssertionError("the log ends at 5, and 7 is committed")
    return flushed(self, now_ms)

flushed, RaftNode.on_flushed = RaftNode.on_flushed, broken
threading.Thread(target=time.sleep, args=(600,)).start()
from klamm.cli.main import main
main()
"""


def create_topic(port: int) -> None:
    """Send CreateTopics v2 of "t" without waiting for a response."""
    body = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x75\x30\x00"
    head = b"\x00\x13\x00\x02\x00\x00\x00\x01\xff\xff"
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(len(head + body).to_bytes(4, "big") + head + body)


def test_a_violated_invariant_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    trigger, port = tmp_path / "now", free_port()
    output = tmp_path / "output"
    arguments = ["start", "--data", str(tmp_path / "data"), "--port", str(port)]
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(trigger=str(trigger)), *arguments], stdout=file, stderr=file
        )
    try:
        node = NodeProcess(tmp_path / "data", port=port)
        wait_until(lambda: node.answers(METADATA))
        with socket.create_connection(("127.0.0.1", port), 30):
            trigger.touch()
            create_topic(port)
            assert process.wait(30) == 1
    finally:
        process.kill()
    lines = output.read_text().splitlines()
    assert lines[-1] == "klamm: the replica stopped: AssertionError: the log ends at 5, and 7 is committed", lines
    assert sum("Traceback" in line for line in lines) == 1, "the cause, once"
    with NodeProcess(tmp_path / "data") as again:
        assert again.is_running


def test_an_embedded_node_raises_the_reason_and_leaves_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = RaftNode.on_flushed

    def broken(self: RaftNode, now_ms: int) -> list[object]:
        if is_broken:
            raise AssertionError("the log ends at 5, and 7 is committed")
        return list(flushed(self, now_ms))

    is_broken = False
    monkeypatch.setattr(RaftNode, "on_flushed", broken)
    cluster = klamm.Cluster()
    cluster.create_topic("before")
    is_broken = True
    reason = "the replica stopped: AssertionError: the log ends at 5, and 7 is committed"
    with pytest.raises(NodeFailedError, match=reason):
        cluster.create_topic("after")
    with pytest.raises(NodeFailedError, match=reason):
        cluster.topics()
    cluster.close()
