"""Input that cannot be audited is named in one line before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.ports import free_port

import klamm
from klamm.cli.main import run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["audit", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return " ".join(shown.err.split())


def test_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "--data", str(tmp_path / "nowhere"))
    assert f"{tmp_path / 'nowhere'} does not exist" in message


def test_no_metadata_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "greetings-0").mkdir()
    message = refused(capsys, "--data", str(tmp_path))
    assert f"{tmp_path} holds no metadata log: name a controller's log directory" in message


def test_a_damaged_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "00000000000000000017-0000000001.checkpoint"
    file.write_bytes(b"\x00" * 100)
    assert str(file) in refused(capsys, "--data", str(file))


def test_a_refused_connection(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert address in refused(capsys, "--bootstrap-controller", address)


def test_a_broker_is_no_controller(capsys: pytest.CaptureFixture[str]) -> None:
    with klamm.Cluster() as cluster:
        message = refused(capsys, "--bootstrap-controller", cluster.bootstrap_servers)
        assert cluster.bootstrap_servers in message
        assert "controller" in message


def test_an_unknown_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no question 'why': use one of leadership" in refused(capsys, "why")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, "--html", str(tmp_path / "nowhere" / "report.html"))
    assert str(tmp_path / "nowhere") in message
