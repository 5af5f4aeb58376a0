"""The doctor with real controllers: all running, one and two of three down, and on their directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import klamm
from klamm.cli.doctor import collection
from klamm.cli.main import run
from klamm.formats.directories import METADATA_FOLDER
from tests.support.lost_majority import contents, make_three
from tests.support.waiting import wait_until


def examine(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = run(["quorum", "doctor", "--json", *map(str, arguments)])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def names(found: dict[str, Any]) -> set[str]:
    return {finding["name"] for finding in found["findings"]}


def test_three_controllers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "SECOND_LOOK_S", 0.3)
    with klamm.Cluster(controllers=3, brokers=1) as cluster:
        cluster.create_topic("orders")
        addresses = [controller.address for controller in cluster.controllers]
        # A voter that has just learned of the leader may not have fetched yet.
        wait_until(lambda: examine(capsys, "--bootstrap-controller", addresses[0])[1]["findings"] == [])
        code, found = examine(capsys, "--bootstrap-controller", addresses[0])
        assert (code, found["findings"]) == (0, [])
        assert "voters" in found["summary"]
        active, first, second = sorted(cluster.controllers, key=lambda one: not one.is_active)
        asked, gone = active.address, first.address
        first.stop()
        code, found = examine(capsys, "--bootstrap-controller", asked)
        assert code == 1
        assert "unreachable-voter" in names(found)
        assert any(gone in finding["text"] for finding in found["findings"])
        left = second.address
        active.stop()
        # The last one may be the leader for a moment, elected by the one that stops, until it misses the others'
        # fetches.
        everybody = f"{left},{gone},{asked}"
        wait_until(lambda: "majority-lost" in names(examine(capsys, "--bootstrap-controller", everybody)[1]))
        first.start()  # so that the broker can shut down in a controlled way


def test_without_an_address_the_brokers_controllers_are_examined(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with klamm.Cluster() as cluster:
        monkeypatch.setenv("KLAMM_BOOTSTRAP", cluster.bootstrap_servers)
        code, found = examine(capsys)
        assert (code, found["findings"]) == (0, [])
        assert found["summary"].startswith("leader 1 in epoch ")


def test_a_broker_is_no_controller(capsys: pytest.CaptureFixture[str]) -> None:
    with klamm.Cluster() as cluster:
        code, found = examine(capsys, "--bootstrap-controller", cluster.bootstrap_servers)
    assert code == 1
    assert [finding["name"] for finding in found["findings"]] == ["unreachable"]
    assert "not a controller" in found["findings"][0]["text"]


def test_directories_of_a_lost_majority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = make_three(tmp_path, 1)
    (one / METADATA_FOLDER / "quorum-state").write_bytes(b"{}")
    before = contents([one, two, three])
    code, found = examine(capsys, one, two, three)
    assert code == 1
    assert {"majority-lost", "unreachable-voter", "quorum-state-unreadable", "shorter-log"} <= names(found)
    assert contents([one, two, three]) == before
    assert run(["quorum", "doctor", str(one)]) == 1
    out = capsys.readouterr().out
    assert "error: 0 of 3 voters respond, 2 are needed to elect a leader; missing: 1, 2, 3" in out
    assert "  -> " in out
