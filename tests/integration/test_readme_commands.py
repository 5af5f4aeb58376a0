"""The README's blocks of commands, run as they stand there but for ports, moments and folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from klamm.admin.client import Client
from klamm.admin.topics import create
from tests.integration.test_readme import COMMANDS
from tests.support.ports import free_port
from tests.support.waiting import wait_until

TIMEOUT_S = 60


def block(start: str) -> list[str]:
    """The lines of the one that begins so."""
    [found] = [text for text in COMMANDS if text.startswith(start)]
    return str(found).splitlines()


class Folder:
    """Where the commands run, and what stands there instead of the README's values."""

    def __init__(self, path: Path, **replaced: str) -> None:
        self.path = path
        self._replaced = replaced
        self._environment = os.environ | {"NO_COLOR": "1"}
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def replaced(self, line: str) -> str:
        for text, instead in self._replaced.items():
            line = line.replace(text, instead)
        return line

    def set(self, **values: str) -> None:
        self._environment |= values

    def run(self, line: str) -> str:
        """What it prints; it has to succeed."""
        command, environment = self.replaced(line), self._environment
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Until the block ends, with Ctrl-C."""
        command = ["bash", "-c", f"exec {self.replaced(line)}"]
        with (self.path / "output").open("a") as errors:
            process = subprocess.Popen(
                command, cwd=self.path, env=self._environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) in (0, 130)
        finally:
            process.kill()
            process.communicate()


def properties(node_id: int, roles: str, controller_port: int, bootstrap_port: int, **others: str) -> str:
    values = {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://localhost:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"localhost:{bootstrap_port}",
    }
    return "".join(f"{key}={value}\n" for key, value in (values | others).items())


def test_a_node_with_a_file_of_its_own(tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}"
    text = properties(
        1, "broker,controller", controller, controller, **{"listeners": listeners, "log.dirs": "klamm-data"}
    )
    (tmp_path / "server.properties").write_text(text)
    of_now = {"localhost:9093": f"localhost:{controller}", "2026-01-31T12:00": "end", "1h end": "0 end"}
    folder = Folder(tmp_path, **of_now, **{"/backup/data": "klamm-data"})
    folder.set(KLAMM_BOOTSTRAP=f"localhost:{port}")
    formatted, start = block("klamm storage format -c server.properties")
    folder.run(formatted)
    with folder.running(start) as node:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("klamm ")
        with Client(f"localhost:{port}") as client:
            create(client, ["orders"])
        folder.run("klamm produce orders one")
        tail, at, diff, why = block("klamm metadata tail")
        with folder.running(tail) as shown:
            assert shown.stdout is not None
            assert any("orders" in line for line in iter(shown.stdout.readline, ""))
        assert "orders" in folder.run(at)
        assert "orders" in folder.run(diff)
        assert "orders-0: broker 1 leads it" in folder.run(why)
        for line in block("klamm quorum doctor"):
            assert "nothing is wrong" in folder.run(line)
    checked = [folder.run(line) for line in block("klamm storage check")]
    assert ["everything is intact" in said for said in checked[:2]] == [True, True]
    assert json.loads(checked[2])["intact"] is True


def test_controllers_that_come_and_go(tmp_path: Path) -> None:
    ports = {number: free_port() for number in (1, 2)}
    without_terminal = {"remove 1": "remove 1 --yes"}
    folders = [
        Folder(tmp_path, **{"localhost:9093": f"localhost:{port}"}, **without_terminal) for port in ports.values()
    ]
    first, second = folders
    for number, port in ports.items():
        text = properties(number, "controller", port, ports[1], **{"log.dirs": f"data-{number}"})
        (tmp_path / f"c{number}.properties").write_text(text)
    first.set(ID=first.run("klamm storage random-uuid").strip())
    standalone, joining, added, status, removed, _ = block("klamm storage format -c c1.properties")
    first.run(standalone)
    first.run(joining)

    def members(folder: Folder, kind: str) -> list[int]:
        [found] = re.findall(rf"^Current{kind}:\s+(.*)$", folder.run(status), re.MULTILINE)
        return [one["id"] for one in json.loads(found)]

    with first.running("klamm start c1.properties") as one, first.running("klamm start c2.properties") as two:
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline().startswith("klamm ")
        wait_until(lambda: members(first, "Observers") == [2])
        first.run(added)
        assert members(first, "Voters") == [1, 2]
        first.run(removed)
        assert members(second, "Voters") == [2]
