from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipelines.bench import connector
from klamm.pipelines.bench.connector import ConnectorEnvironment, EnvironmentMissingError


def test_missing_programs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match=r"java and mvn not found in PATH: .* JDK 17 or newer, and Maven"):
        ConnectorEnvironment(tmp_path / "made").make()
    assert not (tmp_path / "made").exists()


def test_an_installed_connector_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / ".complete").touch()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "one.jar").touch()
    made = ConnectorEnvironment(tmp_path)
    made.make()
    assert made.jars() == [tmp_path / "jars" / "one.jar"]


def test_a_failing_program_is_named_with_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("java", "mvn"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho no route to Maven >&2\nexit 3\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("sys.executable", str(tmp_path / "java"))
    messages: list[str] = []
    with pytest.raises(EnvironmentMissingError, match=r"venv .* failed: no route to Maven"):
        ConnectorEnvironment(tmp_path / "made").make(messages.append)
    assert messages == [f"pip installs PySpark {connector.VERSION} into {tmp_path / 'made'}, once"]
    assert not ConnectorEnvironment(tmp_path / "made").is_made


def test_the_connector_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert connector.default_folder() == Path(f"/somewhere/klamm/spark-connector-{connector.VERSION}")
