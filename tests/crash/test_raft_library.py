"""Three processes of klamm.raft, killed under load: what their clients saw is a register's history."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from klamm.testing.linearizability import UNKNOWN, Call, is_linearizable, register
from tests.support.ports import free_port

PROGRAM = Path(__file__).parents[1] / "support" / "raft_register.py"
BOUND_S = 60.0
CALLS_BETWEEN = 40


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.voters = json.dumps({node_id: f"127.0.0.1:{free_port()}" for node_id in (1, 2, 3)})
        self.processes, self.readers = {}, []
        self.leader = None
        self.begun, self.ended = {}, {}

    def start(self, node_id):
        with open(self.folder / f"{node_id}.err", "ab") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.folder / str(node_id)), str(node_id), self.voters],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes[node_id] = process
        reader = threading.Thread(target=self.read, args=(node_id, process.stdout))
        reader.start()
        self.readers.append(reader)

    def read(self, node_id, lines):
        for line in lines:
            if not line.endswith("\n"):
                return  # killed while it wrote
            match json.loads(line):
                case ["lead", True]:
                    self.leader = node_id
                case ["begun", name, asked, at]:
                    self.begun[name] = (tuple(asked), at)
                case ["ended", name, answer, at]:
                    self.ended[name] = (answer, at)

    def kill(self, node_id):
        process = self.processes.pop(node_id)
        process.kill()
        process.wait()

    def wait_for(self, condition, what):
        deadline = time.monotonic() + BOUND_S
        while not condition():
            errors = "\n".join(file.read_text()[-2000:] for file in self.folder.glob("*.err"))
            assert time.monotonic() < deadline, f"{what} did not come in {BOUND_S} s\n{errors}"
            time.sleep(0.01)

    def wait_for_calls(self, count):
        enough = len(self.ended) + count
        self.wait_for(lambda: len(self.ended) >= enough, f"{enough} calls")

    def close(self):
        for node_id in list(self.processes):
            self.kill(node_id)
        for reader in self.readers:
            reader.join()

    def history(self):
        for name, (asked, begun) in self.begun.items():
            answer, ended = self.ended.get(name, (UNKNOWN, 0))
            yield Call(asked, answer, begun, ended)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_histories_of_killed_processes_are_linearizable(tmp_path, kills):
    cluster = Cluster(tmp_path)
    try:
        for node_id in (1, 2, 3):
            cluster.start(node_id)
        cluster.wait_for(lambda: cluster.leader is not None, "a leader")
        for _ in range(kills):
            cluster.wait_for_calls(CALLS_BETWEEN)
            victim, cluster.leader = cluster.leader, None
            cluster.kill(victim)
            cluster.wait_for(lambda: cluster.leader is not None, "another leader")
            cluster.wait_for_calls(CALLS_BETWEEN)
            cluster.start(victim)
        cluster.wait_for_calls(CALLS_BETWEEN)
    finally:
        cluster.close()
    history = list(cluster.history())
    assert sum(call.answered is not UNKNOWN for call in history) >= kills * CALLS_BETWEEN
    assert is_linearizable(history, register(""))
