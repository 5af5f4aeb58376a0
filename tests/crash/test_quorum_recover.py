"""`klamm quorum recover` is killed before each of its changes: the next call completes the recovery, or starts over."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import klamm
from klamm._engine.quorum import StorageError
from klamm.cli.main import run
from klamm.formats.directories import METADATA_FOLDER, is_in_recovery
from klamm.metadata import History
from klamm.raft.election.election_state import ElectionState, decode
from klamm.raft.log.control_records import KRAFT_VOTERS, encode_voters
from klamm.raft.voters.voter_set import ReplicaKey, Voter, VoterSet
from tests.support import dying
from tests.support.lost_majority import TOPICS, contents, make_three, open_log


class Lost(NamedTuple):
    """The remaining directories of a quorum."""

    left: tuple[Path, ...]
    voters: list[int]
    """The new voters."""
    longest: Path

    def copied(self, source: Path, target: Path) -> Lost:
        shutil.copytree(source, target)
        left = tuple(target / path.name for path in self.left)
        return Lost(left, self.voters, target / self.longest.name)


def lose(folder: Path, kraft_version: int) -> Lost:
    """One of three voters remains; or two of five, with kraft.version 1 and logs of different lengths."""
    one, two, three = make_three(folder, kraft_version)
    shutil.rmtree(three)
    if kraft_version == 0:
        shutil.rmtree(two)
        return Lost((one,), [1], one)
    voters = History(one).state_at().quorum.voters
    five = VoterSet.of([*voters, *(Voter(ReplicaKey(at, bytes([at]) * 16)) for at in (4, 5))])
    for directory in (one, two):
        log = open_log(directory)
        log.append_control([(KRAFT_VOTERS, encode_voters(five))], log.last_epoch + 1, 0)
        log.close()
    return Lost((one, two), [1, 2], two)


def recover(directories: Sequence[Path], *more: str) -> int:
    return run(["quorum", "recover", "--json", *map(str, directories), *more])


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check_whole(lost: Lost, longest: History, said: dict[str, Any], kept: dict[str, dict[Path, bytes]]) -> None:
    """All have the longest log and one new epoch, and a copy of the previous files was kept."""
    assert (said["applied"], said["new_voters"]) == (True, lost.voters)
    for directory in lost.left:
        assert not is_in_recovery(directory)
        assert History(directory).state_at().image == longest.state_at().image
        assert decode((directory / METADATA_FOLDER / "quorum-state").read_bytes()) == ElectionState(
            said["epoch"], None, None
        )
    logs = [
        {path.name: data for path, data in contents([directory / METADATA_FOLDER]).items()} for directory in lost.left
    ]
    assert all(log == logs[0] for log in logs)
    for path, directory in zip(map(Path, said["kept"]), lost.left, strict=True):
        found = {file.relative_to(path): data for file, data in contents([path]).items()}
        assert found == kept[directory.name]


def files_of(lost: Lost) -> dict[str, dict[Path, bytes]]:
    """The files in each log folder."""
    folders = [one / METADATA_FOLDER for one in lost.left]
    return {
        folder.parent.name: {path.relative_to(folder): data for path, data in contents([folder]).items()}
        for folder in folders
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"os.rename"}, id="some"),
        pytest.param(dying.EVERY_CHANGE, id="every", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_next_call_completes_the_recovery_or_starts_over(
    tmp_path: Path, kraft_version: int, changes: Collection[str], capsys: pytest.CaptureFixture[str]
) -> None:
    dying.preload(["klamm.cli.main", "klamm.cli.quorum.quorum_recover", "tests.crash.test_quorum_recover"])
    source = lose(tmp_path / "source", kraft_version)
    longest, files = History(source.longest), files_of(source)
    ways: Counter[str] = Counter()
    for step in itertools.count():
        lost = source.copied(tmp_path / "source", tmp_path / str(step))
        if not dying.dies_at(step, changes, recover, lost.left, "--apply"):
            break
        before = contents(lost.left)
        code = recover(lost.left)
        assert contents(lost.left) == before, "a dry run changes nothing"
        said = capsys.readouterr()
        if not any(map(is_in_recovery, lost.left)) and files_of(lost) != files:
            # It was complete except for the report; with kraft.version 0 it can be repeated.
            assert (code, "nothing is lost" in said.err) == ((0, False) if kraft_version == 0 else (1, True))
            ways["done"] += 1
            continue
        is_begun = json.loads(said.out).get("interrupted", False)
        # Either directory may be named: the recovery knows the other one.
        assert recover(lost.left[-1:] if is_begun else lost.left, "--apply") == 0, capsys.readouterr()
        ways["completed" if is_begun else "restarted"] += 1
        check_whole(lost, longest, report(capsys), files)
    assert ways["restarted"] > 0, ways
    assert ways["completed"] > 0, ways


def test_no_node_starts_during_an_interrupted_recovery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = lose(tmp_path, 0)
    dying.preload(["klamm.cli.main", "klamm.cli.quorum.quorum_recover", "tests.crash.test_quorum_recover"])
    assert dying.dies_at(3, {"os.rename"}, recover, lost.left, "--apply")
    [directory] = lost.left
    assert not (directory / METADATA_FOLDER).exists()
    with pytest.raises(StorageError, match=f"`klamm quorum recover --apply {directory}` completes it"):
        klamm.Cluster(directory).close()
    assert run(["quorum", "recover", str(directory)]) == 0
    assert "it must be completed first, with --apply:" in capsys.readouterr().out
    assert run(["quorum", "recover", str(directory), "--apply"]) == 0
    assert "it is complete now:" in (out := capsys.readouterr().out)
    assert "never start [2,3] again" in out
    with klamm.Cluster(directory) as cluster:
        assert cluster.topics() == sorted(TOPICS)
