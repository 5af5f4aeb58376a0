"""After a majority is lost, the remaining nodes become a quorum of their own, with all surviving records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import klamm
from klamm._engine.quorum import StorageError
from klamm.cli.main import run
from klamm.cli.recovery import execution as carry_out
from klamm.formats.directories import METADATA_FOLDER
from klamm.metadata import Entry, History
from klamm.raft.election.election_state import ElectionState, decode
from klamm.raft.log.control_records import KRAFT_VOTERS, decode_voters, encode_voters
from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet
from tests.support.lost_majority import TOPICS, contents, make_three, open_log
from tests.support.node_process import NodeProcess


@pytest.fixture(params=[0, 1], ids=["kraft.version 0", "kraft.version 1"])
def kraft_version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def recover(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert run(["quorum", "recover", "--json", *map(str, arguments)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_one_of_three_continues_alone(tmp_path: Path, kraft_version: int, capsys: pytest.CaptureFixture[str]) -> None:
    one, *_ = make_three(tmp_path, kraft_version)
    before = History(one).state_at()
    files = contents([one])
    dry = recover(capsys, one)
    assert contents([one]) == files, "a dry run changes nothing"
    assert (dry["applied"], dry["lost"], dry["new_voters"], dry["kept"]) == (False, [2, 3], [1], [])
    done = recover(capsys, one, "--apply")
    assert done | {"applied": False, "kept": []} == dry
    [kept] = map(Path, done["kept"])
    assert contents([kept]) == {
        kept / path.name: data for path, data in files.items() if path.parent.name == METADATA_FOLDER
    }
    assert not list(one.glob(".klamm*"))
    after = History(one).state_at()
    assert after.image == before.image
    assert [voter.key.id for voter in after.quorum.voters] == ([1] if kraft_version else [1, 2, 3])
    election = decode((one / METADATA_FOLDER / "quorum-state").read_bytes())
    assert election == ElectionState(done["epoch"], None, None)
    assert done["epoch"] > before.epoch
    with klamm.Cluster(one) as cluster:
        assert cluster.topics() == sorted(TOPICS)
        cluster.create_topic("after")
    assert "after" in History(one).state_at().image.topic_names()


def test_the_longest_log_wins_even_if_an_observer_has_it(
    tmp_path: Path, kraft_version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only node 3's directory remains, with the shorter log; a broker has all records of node 2."""
    _, two, three = make_three(tmp_path, kraft_version)
    observer = tmp_path / "broker-7"
    shutil.copytree(two, observer)
    meta = (two / "meta.properties").read_text()
    (observer / "meta.properties").write_text(meta.replace("node.id=2", "node.id=7"))
    longest = History(two).state_at()
    files = contents([observer])
    done = recover(capsys, three, observer, "--apply")
    assert (done["chosen"]["node"], done["new_voters"], done["lost"]) == (7, [3], [1, 2])
    assert "node 7" in done["warnings"][0]
    assert contents([observer]) == files
    assert History(three).state_at().image == longest.image
    log = open_log(three)
    assert log.last_epoch == (done["epoch"] if kraft_version else longest.epoch)
    log.close()


def test_two_of_five_continue_with_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, _ = make_three(tmp_path, 1)
    voters = History(one).state_at().quorum.voters
    five = VoterSet.of([*voters, *(Voter(ReplicaKey(at, bytes([at]) * 16)) for at in (4, 5))])
    for directory in (one, two):
        log = open_log(directory)
        log.append_control([(KRAFT_VOTERS, encode_voters(five))], log.last_epoch + 1, 0)
        log.close()
    longest = History(two).state_at()
    done = recover(capsys, one, two, "--apply", "--backup", tmp_path / "kept")
    assert (done["chosen"]["node"], done["new_voters"], done["lost"]) == (2, [1, 2], [3, 4, 5])
    assert sorted(path.name.partition("-__")[0] for path in (tmp_path / "kept").iterdir()) == [
        "node-1-node-1",
        "node-2-node-2",
    ]
    files = [
        {path.name: data for path, data in contents([directory / METADATA_FOLDER]).items()} for directory in (one, two)
    ]
    assert files[0] == files[1]
    for directory in (one, two):
        after = History(directory).state_at()
        assert after.image == longest.image
        assert after.quorum.voters == voters[:2]
        sizes = [len(decode_voters(entry.value)) for entry in _voters_records(directory)]
        assert sizes == [3, 5, 4, 3, 2], "one voter less a record, as KIP-853 removes them"


def _voters_records(directory: Path) -> list[Entry]:
    return [entry for entry in History(directory).records() if entry.control == KRAFT_VOTERS]


def test_a_quorum_with_a_majority_is_rejected(
    tmp_path: Path, kraft_version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three = make_three(tmp_path, kraft_version)
    files = contents([one, two, three])
    assert run(["quorum", "recover", str(one), str(three), "--apply"]) == 1
    assert "nothing is lost: 1, 3 of the voters 1, 2, 3 are a majority" in capsys.readouterr().err
    assert contents([one, two, three]) == files


def test_running_nodes_and_unrelated_directories_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with NodeProcess(tmp_path / "running"):
        assert run(["quorum", "recover", str(tmp_path / "running"), "--apply"]) == 1
        assert "used by another" in (error := capsys.readouterr().err)
        assert "while its nodes are down" in error
    one, _, three = make_three(tmp_path, 0)
    for arguments, text in (
        ([one, one], "both belong to node 1"),
        ([one, tmp_path / "running"], "name directories of one cluster"),
        ([tmp_path], "it has no meta.properties"),
    ):
        assert run(["quorum", "recover", *map(str, arguments), "--apply"]) == 1
        assert text in capsys.readouterr().err.replace("\n", " "), text
    meta = (three / "meta.properties").read_text()
    (three / "meta.properties").write_text(meta.replace("node.id=3", "node.id=9"))
    assert run(["quorum", "recover", str(three)]) == 1
    assert "none of these nodes is a voter: the voters are 1, 2, 3" in capsys.readouterr().err


def test_a_broken_quorum_state_and_a_torn_log_are_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, *_ = make_three(tmp_path, 1)
    (one / METADATA_FOLDER / "quorum-state").write_bytes(b"{")
    segment = one / METADATA_FOLDER / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes() + b"\x01" * 100)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={one}\ncontroller.quorum.voters=1@localhost:9001,2@localhost:9002,3@localhost:9003\n")
    assert run(["quorum", "recover", str(config), "--apply", "--backup", str(tmp_path / "kept")]) == 0
    out = capsys.readouterr().out
    assert "quorum-state of node 1 cannot be read and is recreated" in out
    assert "never start [2,3] again" in out
    assert len(list((tmp_path / "kept").iterdir())) == 1
    with klamm.Cluster(one) as cluster:
        assert cluster.topics() == sorted(TOPICS)


def test_a_failed_recovery_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *_ = make_three(tmp_path, 1)
    files = contents([one])
    for step, error, text in (
        ("_append", StorageError("the copy ends early"), "the copy ends early; nothing was changed"),
        (
            "_copy",
            OSError(28, "No space left on device", "/full"),
            "/full: No space left on device; nothing was changed",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(carry_out, step, Mock(side_effect=error))
            assert run(["quorum", "recover", str(one), "--apply"]) == 1
        assert text in capsys.readouterr().err
        assert contents([one]) == files
        assert not (one / ".klamm-recovery").exists()
    assert run(["quorum", "recover", str(one), "--apply"]) == 0


def test_a_recovery_without_its_note_needs_the_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, *_ = make_three(tmp_path, 1)
    (one / ".klamm-recovery").mkdir()
    (one / METADATA_FOLDER).rename(one / ".klamm-recovery" / "old")
    assert run(["quorum", "recover", str(one), "--apply"]) == 1
    assert "note.json: rename" in capsys.readouterr().err
    (one / ".klamm-recovery" / "old").rename(one / METADATA_FOLDER)
    assert run(["quorum", "recover", str(one), "--apply"]) == 0
    assert not (one / ".klamm-recovery").exists()
