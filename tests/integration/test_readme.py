"""The README's code and commands run as they stand there; what needs Spark, in `tests/spark/test_quick_start.py`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.cli.framework.app import parse
from klamm.cli.framework.command_line import Call
from klamm.cli.main import run
from tests.support.node_process import NodeProcess

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [text for language, text in BLOCKS if not language]
WITH_SPARK = ("from pyspark", "orders = {", "copies = ", "import os\n\nsecured", "from klamm.pipelines.audit")
HERE = (
    "from confluent_kafka",
    "from kafka import KafkaConsumer",
    "import asyncio\n\nfrom aiokafka",
    "import klamm\n\nwith klamm.Cluster() as",
    "from kafka import KafkaProducer\n\n\ndef test",
    "import klamm\n\nwith klamm.Cluster(controllers=3)",
    "from klamm.metadata",
    "import asyncio\n\nfrom klamm.raft import",
    "import asyncio\n\nfrom klamm.raft.recipes",
)


def snippet(start: str) -> str:
    """The one that begins so."""
    [found] = [code for code in SNIPPETS if code.startswith(start)]
    return str(found)


def test_every_snippet_is_run_by_a_test() -> None:
    assert sorted(map(snippet, (*HERE, *WITH_SPARK))) == sorted(SNIPPETS)


OF_CLIENTS = {"confluent_kafka": snippet(HERE[0]), "kafka": snippet(HERE[1]), "aiokafka": snippet(HERE[2])}


@pytest.mark.parametrize("code", OF_CLIENTS.values(), ids=OF_CLIENTS)
def test_a_quick_start(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(tmp_path / "data") as node:
        exec(compile(code.replace("localhost:9092", node.bootstrap), "README.md", "exec"), {"__name__": "readme"})
    assert "b'hello'" in capsys.readouterr().out


def test_embedding(capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet("import klamm\n\nwith klamm.Cluster() as")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    records, committed, counters = capsys.readouterr().out.splitlines()
    assert [records, committed, counters[:1]] == ["[]", "{}", "{"]


def test_several_controllers() -> None:
    code = snippet("import klamm\n\nwith klamm.Cluster(controllers=3)")
    names: dict[str, object] = {"__name__": "readme"}
    told = "    told = cluster.topics(), [one.is_running for one in cluster.controllers]"
    exec(compile(f"{code}{told}", "README.md", "exec"), names)
    assert names["told"] == (["greetings"], [True] * 3)


def test_the_history_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet("from klamm.metadata")
    with NodeProcess(tmp_path / "data"):
        code = code.replace('"klamm-data"', f"{str(tmp_path / 'data')!r}").replace("15m", "end")
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "pyarrow.Table\ntopic: string" in capsys.readouterr().out


@pytest.mark.parametrize(("module", "said"), [("klamm.raft", ["b'1'", "1"]), ("klamm.raft.recipes", None)])
def test_the_library(
    module: str,
    said: list[str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = (code for code in SNIPPETS if f"from {module} import" in code)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    lines = capsys.readouterr().out.splitlines()
    if said is None:
        assert [line.partition("path=")[2] for line in lines] == ["'/reports')", "'/reports/latest')"]
    else:
        assert lines == said


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_greeting.py").write_text(snippet("from kafka import KafkaProducer"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_greeting.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


LINES = [line for block in COMMANDS for line in block.splitlines() if line.startswith("klamm ")]


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_understood(line: str) -> None:
    """Its words are those of a command; nothing is done."""
    words = shlex.split(re.sub(r"\$\(.*?\)|\$\w+", "placeholder", line), comments=True)[1:]
    assert isinstance(parse(words), Call)


def test_the_first_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [block for block in COMMANDS if block.startswith("klamm topics create greetings")]
    *lines, follow, last = block.splitlines()
    assert "--follow" in follow
    with NodeProcess(tmp_path / "data") as node:
        monkeypatch.setenv("KLAMM_BOOTSTRAP", node.bootstrap)
        for line in lines:
            assert run(shlex.split(line, comments=True)[1:]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
        assert {"hello", "world"} <= set(said.split())
        member = subprocess.Popen(
            [sys.executable, "-m", *shlex.split(follow, comments=True)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            assert member.stdout is not None
            assert {member.stdout.readline().strip() for _ in range(2)} == {"hello", "world"}
            member.send_signal(signal.SIGINT)
            assert member.wait(60) == 0
        finally:
            member.kill()
            member.communicate()
        assert run(shlex.split(last, comments=True)[1:]) == 0
        assert "readers" in capsys.readouterr().out
