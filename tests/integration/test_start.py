"""`klamm start` as a process: its output, its errors, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from klamm.config.sources import embedded_default
from tests.support.node_process import NodeProcess
from tests.support.ports import free_port
from tests.support.privileges import obey_permissions
from tests.support.waiting import wait_until

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


def klamm(*arguments: str, cwd: Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "klamm", *arguments],
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1"} | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        preexec_fn=obey_permissions,
    )


def refused(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """The message of a start that fails; the folder is unchanged, and there is no traceback."""
    before = content(folder)
    done = klamm("start", *arguments, cwd=folder, environment=environment)
    assert done.returncode == 1, done.stderr
    assert content(folder) == before
    messages = [line for line in done.stderr.splitlines() if line.startswith("klamm: ")]
    assert len(messages) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return messages[0]


def content(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """The mode and content of each file, except lock files, which an inspection creates."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def server_properties(folder: Path, **changes: str) -> Path:
    given = embedded_default(folder / "data", free_port(), "127.0.0.1") | {
        name.replace("_", "."): value for name, value in changes.items()
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return file


def test_a_node_prints_its_address_and_exits_with_0(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    node.start()
    assert node.stop() == 0
    said = node.log()
    assert re.search(r"^klamm 0\.1\.0, cluster [\w-]{22}, node 1$", said, re.MULTILINE)
    assert f":{node.port}" in said
    assert str(tmp_path / "data") in said
    assert "klamm topics create" in said
    assert "WARN" not in said
    assert "ERROR" not in said
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_stdout_does_not_end_a_node(tmp_path: Path, number: signal.Signals) -> None:
    """A closed terminal does no harm either: it causes a controlled shutdown."""
    command = [sys.executable, "-m", "klamm", "start", "--data", str(tmp_path / "data"), "--port", "0"]
    with Path("/dev/full").open("wb") as full, (tmp_path / "log").open("wb") as log:
        # Under `nohup` the tests ignore SIGHUP, which the node would inherit.
        default = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
        node = subprocess.Popen(command, stdout=full, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=default)  # noqa: PLW1509
    text = (tmp_path / "log").read_text
    wait_until(lambda: "to stdout" in text(), text)
    node.send_signal(number)
    assert node.wait(30) == 0, text()
    assert text().splitlines()[-1].endswith("stopped")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_formatted_folder_with_a_file(tmp_path: Path) -> None:
    file = server_properties(tmp_path)
    assert "not formatted" in refused(tmp_path, str(file))
    assert klamm("storage", "format", "-c", str(file), "-t", CLUSTER, cwd=tmp_path).returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "klamm", "start", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"klamm 0.1.0, cluster {CLUSTER}, node 1\n"
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_folder_in_use(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        done = klamm("start", "--data", str(node.data), "--port", "0", cwd=tmp_path)
    assert done.returncode == 1
    (message,) = (line for line in done.stderr.splitlines() if line.startswith("klamm: "))
    assert str(node.data) in message
    assert "process uses this directory" in message


@pytest.mark.parametrize("is_used", [False, True])
def test_a_port_in_use(used: Path, tmp_path: Path, is_used: bool) -> None:
    data = used if is_used else tmp_path / "new"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for own, other in (("PLAINTEXT", "CONTROLLER"), ("CONTROLLER", "PLAINTEXT")):
            listeners = f"listeners={own}://127.0.0.1:{port},{other}://127.0.0.1:0"
            message = refused(tmp_path, "--override", listeners, "--data", str(data))
            assert f"127.0.0.1:{port}" in message
            assert "in use; stop what listens there, or choose another port (--port, or the key listeners)" in message


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A folder that a node has used."""
    node = NodeProcess(tmp_path / "data")
    node.start()
    assert node.stop() == 0
    return tmp_path / "data"


def test_the_folder_of_another_node(used: Path) -> None:
    overrides = ("-o", "node.id=2", "-o", "controller.quorum.voters=2@localhost:0")
    message = refused(used, "--data", str(used), "--port", "0", *overrides)
    assert "node.id is 1, but the configuration says node.id=2" in message


def test_a_folder_of_a_newer_format(used: Path) -> None:
    file = used / "meta.properties"
    file.write_text(file.read_text().replace("version=1", "version=2"))
    assert "version 2 is newer than this klamm" in refused(used, "--data", str(used), "--port", "0")


def test_folders_of_two_clusters(used: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    file = server_properties(tmp_path, log_dirs=str(other))
    assert klamm("storage", "format", "-c", str(file), "-t", CLUSTER, cwd=tmp_path).returncode == 0
    message = refused(tmp_path, "--port", "0", "-o", f"log.dirs={used},{other}")
    assert "cluster.id" in message
    assert CLUSTER in message


def test_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Milena")
    assert "not formatted" in refused(tmp_path, "--data", str(tmp_path), "--port", "0")


@pytest.mark.parametrize(
    ("closed", "mode"),
    [
        (".", 0o500),
        (".", 0),
        ("meta.properties", 0),
        ("bootstrap.checkpoint", 0),
        ("__cluster_metadata-0", 0o500),
        ("__cluster_metadata-0", 0),
        ("__cluster_metadata-0/quorum-state", 0),
        ("__cluster_metadata-0/00000000000000000000.log", 0o400),
        ("__cluster_metadata-0/00000000000000000000.log", 0),
    ],
)
def test_a_folder_without_permission(used: Path, tmp_path: Path, closed: str, mode: int) -> None:
    path = used / closed
    before, was = content(tmp_path), path.stat().st_mode
    path.chmod(mode)
    try:
        done = klamm("start", "--data", str(used), "--port", "0", cwd=tmp_path)
    finally:
        path.chmod(was)
    assert content(tmp_path) == before
    assert done.returncode == 1
    [message] = [line for line in done.stderr.splitlines() if line.startswith("klamm: ")]
    assert str(path.resolve()) in message
    assert "ermission" in message
    assert "Traceback" not in done.stderr


def test_a_new_folder_without_permission(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o500)
    message = refused(tmp_path, "--data", str(folder / "data"), "--port", "0")
    assert message == f"klamm: cannot format {folder / 'data'}: Permission denied"


def test_variables_of_the_environment_are_read(tmp_path: Path) -> None:
    variables = {"KAFKA_LOG_SEGMENT_BYTES": "1", "KAFKA_HEAP_OPTS": "-Xmx1G"}
    message = refused(tmp_path, environment=variables)
    assert message == "klamm: Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"


def test_a_tls_listener_is_refused(tmp_path: Path) -> None:
    listeners = "listeners=SSL://localhost:9094,CONTROLLER://localhost:0"
    overrides = ("-o", listeners, "-o", "advertised.listeners=SSL://localhost:9094")
    protocols = (
        "-o",
        "listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT",
        "-o",
        "security.inter.broker.protocol=SSL",
    )
    assert "TLS and SASL are not supported yet" in refused(tmp_path, *overrides, *protocols)


def test_an_open_bind_is_warned_about(tmp_path: Path) -> None:
    port = free_port()
    overrides = {
        "listeners": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:0",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "no.such.key": "1",
    }
    node = NodeProcess(tmp_path / "data", port=port, overrides=overrides)
    with node:
        pass
    said = node.log()
    assert f"WARN  start      listener PLAINTEXT://0.0.0.0:{port} is open to every network" in said
    assert "unknown configuration no.such.key is ignored" in said
    assert f"listening   0.0.0.0:{port}\n" in said
    assert f"--bootstrap localhost:{port}\n" in said, "what one can connect to"
