"""The README's code runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import klamm
from tests.support.node_process import NodeProcess

README = Path(__file__).resolve().parents[2] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
FOUND = [(re.search(r"^from (\w*kafka) import", code, re.MULTILINE), code) for code in SNIPPETS]
OF_CLIENTS = {found[1]: code for found, code in FOUND if found}


@pytest.mark.parametrize("code", OF_CLIENTS.values(), ids=OF_CLIENTS)
def test_a_quick_start(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(tmp_path / "data") as node:
        exec(compile(code.replace("localhost:9092", node.bootstrap), "README.md", "exec"), {"__name__": "readme"})
    assert "b'hello'" in capsys.readouterr().out


def test_embedding(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (code for code in SNIPPETS if code.startswith("import klamm"))
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    records, committed, counters = capsys.readouterr().out.splitlines()
    assert [records, committed, counters[:1]] == ["[]", "{}", "{"]


def test_several_controllers() -> None:
    (code,) = (code for code in SNIPPETS if code.startswith("with klamm.Cluster(controllers=3)"))
    names: dict[str, object] = {"__name__": "readme", "klamm": klamm}
    told = "    told = cluster.topics(), [one.is_running for one in cluster.controllers]"
    exec(compile(f"{code}{told}", "README.md", "exec"), names)
    assert names["told"] == (["greetings"], [True] * 3)


def test_the_history_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (code for code in SNIPPETS if code.startswith("from klamm.metadata"))
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
