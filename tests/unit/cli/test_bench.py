from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--job", "delete"], "--job delete: say read, write, stream"),
        (["--conf", "spark.executor.memory"], "--conf spark.executor.memory is not KEY=VALUE"),
        (["--conf", "=1"], "--conf =1 is not KEY=VALUE"),
    ],
)
def test_invalid_options_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "spark", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_missing_dependencies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    assert run(["bench", "spark", "--connector", str(tmp_path / "made")]) == 1
    assert "java and mvn not found in PATH" in " ".join(capsys.readouterr().err.split())
