"""Without an address, commands connect to the node on localhost:9092."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from klamm._engine.client import ClientError
from klamm.cli.main import run
from klamm.cli.metadata import metadata_commands
from klamm.cli.quorum import quorum_doctor, quorum_options


@pytest.mark.parametrize(
    "command",
    ["quorum status", "quorum doctor", "metadata tail", "metadata at end", "metadata diff 0 end", "metadata why t-0"],
)
def test_the_node_on_localhost_is_asked(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(server: str, *_: object, **__: object) -> NoReturn:
        raise ClientError(f"asked {server}")

    monkeypatch.delenv("KLAMM_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)  # without ./klamm-data
    for module in (metadata_commands, quorum_doctor):
        monkeypatch.setattr(module, "find_controllers", ask)
    monkeypatch.setattr(quorum_options, "QuorumClient", ask)
    assert run(command.split()) == 1
    assert capsys.readouterr().err == "error: asked localhost:9092\n"
