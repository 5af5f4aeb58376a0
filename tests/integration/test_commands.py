"""The commands as processes: signals, closed pipes, full disks, and a broker that stops."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from klamm.admin.client import Client
from klamm.admin.groups import LATEST, committed_offsets, list_offsets
from klamm.admin.topics import create
from klamm.cli.records.produce import Producer
from tests.support.node_process import NodeProcess

Name = Callable[[str], str]
Started = subprocess.Popen[bytes]
LINE = b"x" * 99


def write(client: Client, topic: str, values: Iterable[bytes]) -> None:
    create(client, [topic])
    producer = Producer(client, topic, "none", None)
    for value in values:
        producer.add((-1, None, value, []))
    producer.flush()


def end_of(client: Client, topic: str) -> int:
    (end,) = list_offsets(client, {(topic, 0): LATEST}).values()
    return end


@contextlib.contextmanager
def started(bootstrap: str, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator[Started]:
    command = [sys.executable, "-m", "klamm", *arguments]
    environment = os.environ | {"KLAMM_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: Started, stdin: bytes | None = None) -> tuple[int, bytes]:
    """Wait until it has ended; returns its exit code and its error output."""
    _, said = process.communicate(stdin, timeout=60)
    return process.returncode, said


def first_line(process: Started) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as client:
        yield client


EVERYDAY = {
    *("klamm", "klamm._engine", "klamm.admin", "klamm.cli", "klamm.protocol", "klamm.protocol.wire"),
    *("klamm.cli.admin", "klamm.cli.framework", "klamm.cli.terminal"),
    *("klamm.admin.client", "klamm.admin.configs", "klamm.admin.topics"),
    *("klamm.client", "klamm.client.connection"),
    *(
        "klamm.cli.framework.command_config",
        "klamm.cli.framework.command_group",
        "klamm.cli.framework.command_line",
        "klamm.cli.commands",
    ),
    *(
        "klamm.cli.terminal.exits",
        "klamm.cli.main",
        "klamm.cli.framework.options",
        "klamm.cli.terminal.output",
        "klamm.cli.terminal.plain_table",
    ),
    *("klamm.cli.framework.run", "klamm.cli.admin.topic_commands"),
    *("klamm.config", "klamm.config.properties"),
    *("klamm.protocol.api_key", "klamm.protocol.wire.codec", "klamm.protocol.errors"),
    *("klamm.protocol.messages", "klamm.protocol.messages.configs", "klamm.protocol.messages.coordinators"),
    *("klamm.protocol.messages.metadata", "klamm.protocol.messages.topics", "klamm.protocol.uuids"),
    *(
        "klamm.protocol.wire.kio_classes",
        "klamm.protocol.wire.schemas",
        "klamm.protocol.value",
    ),
}
"""The modules of klamm that `klamm topics list` needs. Each addition slows down every command."""


def imported(bootstrap: str, *arguments: str) -> set[str]:
    """The modules that a command imports."""
    script = "import sys\nfrom klamm.cli.main import run\nassert run(sys.argv[1:]) == 0\nprint(*sys.modules)"
    environment = os.environ | {"KLAMM_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "command",
    [
        "topics list",
        "topics list --json",
        "topics describe {topic}",
        "groups list",
        "configs describe topic {topic}",
        "features describe",
        "quorum status",
    ],
)
def test_an_everyday_command_imports_little(bootstrap: str, client: Client, name: Name, command: str) -> None:
    topic = name("t")
    create(client, [topic])
    modules = imported(bootstrap, *command.format(topic=topic).split())
    heavy = {
        "asyncio",
        "click",
        "email",
        "logging",
        "pyarrow",
        "pydantic",
        "pyspark",
        "rich",
        "ssl",
        "subprocess",
        "typer",
    }
    assert heavy & modules == set()
    if command == "topics list":
        own = {one for one in modules if one.partition(".")[0] == "klamm"}
        # The whole engine is one file, so its submodules cost nothing more.
        assert {one for one in own if not one.startswith("klamm._engine.")} == EVERYDAY
        messages = {one.split(".")[2] for one in modules if one.startswith("kio.schema.")}
        headers = {"request_header", "response_header"}
        assert messages == {"metadata", *headers, "errors", "index", "types"}


def test_lines_before_an_invalid_one_are_written(bootstrap: str, client: Client, name: Name) -> None:
    topic = name("lines")
    create(client, [topic])
    with started(bootstrap, "produce", topic, "--key-separator", ":") as process:
        output = f"1 record written to {topic}\nerror: line 2 has no ':'\n"
        assert ended(process, b"k\xff:v\xff\r\nwithout\nk:w\n") == (1, output.encode())
    assert end_of(client, topic) == 1


def test_a_closed_pipe_causes_no_traceback_and_no_commit(bootstrap: str, client: Client, name: Name) -> None:
    topic, group = name("many"), name("team")
    write(client, topic, [LINE] * 20_000)
    with started(bootstrap, "consume", topic, "--group", group) as process:
        assert first_line(process) == LINE + b"\n"
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert committed_offsets(client, group) == {}


def test_a_full_disk_is_reported_in_one_line(bootstrap: str, client: Client, name: Name) -> None:
    create(client, [name("t")])
    with Path("/dev/full").open("wb") as full, started(bootstrap, "topics", "list", stdout=full.fileno()) as process:
        assert ended(process) == (1, b"error: No space left on device\n")


def test_a_stopped_broker_is_reported_in_one_line(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, Client(node.bootstrap) as client:
        create(client, ["t"])
        with started(node.bootstrap, "produce", "t") as process:
            assert process.stdin is not None
            process.stdin.write(b"typed\n" * 20_000)
            process.stdin.flush()
            while end_of(client, "t") == 0:
                assert process.poll() is None
            written = end_of(client, "t")
            node.kill()
            code, said = ended(process)
    assert (code, said.count(b"\n")) == (1, 2)
    output, error = said.splitlines()
    assert int(output.split()[0]) >= written, "no more records are reported as written than were acknowledged"
    assert error.startswith(b"error: ")


def test_follow_waits_for_a_stopped_broker(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", overrides={"group.initial.rebalance.delay.ms": "0"}) as node:
        with Client(node.bootstrap) as client:
            write(client, "t", [b"before"])
        reads = ("consume", "t", "--follow")
        with (
            started(node.bootstrap, *reads) as alone,
            started(node.bootstrap, *reads, "--group", "g") as member,
            started(node.bootstrap, *reads, "--group", "s", "--group-instance-id", "one") as static,
        ):
            readers = (alone, member, static)
            assert [first_line(one) for one in readers] == [b"before\n"] * 3
            node.kill()
            output = [one.stderr.readline() for one in readers if one.stderr is not None]
            assert all(line.endswith(b"; waiting for it to come back\n") for line in output), output
            node.start()
            with Client(node.bootstrap) as client:
                producer = Producer(client, "t", "none", None)
                producer.add((-1, None, b"after", []))
                producer.flush()
            assert [first_line(one) for one in readers] == [b"after\n"] * 3
            for one in readers:
                one.send_signal(signal.SIGINT)
                code, said = ended(one)
                assert (code, said.strip()) == (0, b"")


def test_ctrl_c_writes_the_lines_that_were_read(bootstrap: str, client: Client, name: Name) -> None:
    topic = name("typed")
    create(client, [topic])
    with started(bootstrap, "produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"typed\n" * 20_000)
        process.stdin.flush()
        # A full batch is sent, an incomplete one waits for more lines.
        while end_of(client, topic) == 0:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        code, said = ended(process)
    assert (code, said.count(b"Traceback")) == (130, 0)
    assert int(said.split()[0]) == end_of(client, topic)
