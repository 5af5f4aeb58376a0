"""`klamm storage check` on damaged folders of klamm and Apache Kafka: findings name the file; nothing is changed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.node_process import NodeProcess

import klamm
from klamm.admin.client import Client
from klamm.admin.topics import create
from klamm.cli.main import run
from klamm.cli.records.produce import Producer

RECORDS = 60
GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.3.1"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each system after a controlled shutdown."""
    place = tmp_path_factory.mktemp("intact")
    with tarfile.open(GOLDEN / "clean.tar.xz") as archive:
        archive.extractall(place, filter="data")
    with klamm.Cluster(place / "klamm") as cluster, Client(cluster.bootstrap_servers) as client:
        cluster.create_topic("orders", config={"segment.bytes": str(1 << 20)})
        producer = Producer(client, "orders", "none", None)
        for number in range(RECORDS):
            producer.add((1_700_000_000_000 + number, b"k", b"v" * 50_000, []))
            producer.flush()
    return {"klamm": place / "klamm", "kafka": place / "clean"}


def examined(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    before = contents(folder)
    code = run(["storage", "check", str(folder), "--json", *options])
    assert contents(folder) == before, "not a byte changes"
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def contents(folder: Path) -> dict[Path, tuple[bytes, int] | None]:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None for path in folder.rglob("*")
    }


def wrong(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found["findings"] if one["kind"] != "note"]


@pytest.mark.parametrize("system", ["klamm", "kafka"])
@pytest.mark.parametrize("options", [[], ["--deep"]])
def test_intact_folders_have_no_findings(
    system: str, options: list[str], folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = examined(capsys, folders[system], *options)
    assert wrong(found) == []
    assert code == 0
    assert found["intact"]
    assert found["directories"][0]["clean"]
    assert sum(log["batches"] for log in found["directories"][0]["logs"]) > 50
    assert run(["storage", "check", str(folders[system]), *options]) == 0
    assert "everything is intact" in capsys.readouterr().err


BINARY = {".log", ".index", ".timeindex", ".checkpoint"}


def flipped(file: Path) -> None:
    """Flip a bit: in a binary file but not in a batch header, or in the first significant line of a text file."""
    data = bytearray(file.read_bytes())
    in_text = max(data.find(b"\nversion") + 1, 0)
    at = min(len(data) // 2 + 100, len(data) - 1) if file.suffix in BINARY else in_text
    data[at] ^= 0x40
    file.write_bytes(data)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    used = file.read_bytes().rstrip(b"\0")  # the file is preallocated with zeroes at the end
    # Not within the first bytes of a base offset, which are zeroes as well.
    file.write_bytes(used[: len(used) // 2 + (30 if len(used) > 200 else -1)])


def removed(file: Path) -> None:
    file.unlink()


KINDS = [
    "*-0/*.log",
    "__cluster_metadata-0/*.log",
    "*-0/*.index",
    "*-0/*.timeindex",
    "__cluster_metadata-0/*.checkpoint",
    "__cluster_metadata-0/quorum-state",
    "*-0/leader-epoch-checkpoint",
    "*-0/partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "bootstrap.checkpoint",
    "klamm-clean-stop",
]
"""Kinds of files: the largest of each kind is damaged, because it is not empty."""
ABSENT = {("kafka", "klamm-clean-stop"), ("kafka", "*-0/*.index"), ("klamm", "__cluster_metadata-0/*.checkpoint")}


def of_kind(folder: Path, kind: str) -> Path | None:
    found = [path for path in folder.glob(kind) if kind.startswith("__") or "__cluster" not in str(path.parent)]
    found = [path for path in found if path.stat().st_size > 0]
    return max(found, key=lambda path: (path.stat().st_size, path.name), default=None)


def without_effect(kind: str, damage: Callable[[Path], None]) -> bool:
    """Whether the remaining file is as valid as the original."""
    is_shorter = damage in (emptied, cut) and kind.endswith("index")  # like an index with fewer entries
    is_old = damage is removed and kind in ("bootstrap.checkpoint", "__cluster_metadata-0/*.checkpoint")
    return is_shorter or is_old


def cases() -> Iterator[Any]:
    for system in ("klamm", "kafka"):
        for kind in KINDS:
            for damage in (flipped, emptied, cut, removed):
                if not without_effect(kind, damage):
                    yield pytest.param((system, kind, damage), id=f"{system}-{kind}-{damage.__name__}")


@pytest.mark.parametrize("case", list(cases()))
def test_damage_is_found_in_its_file(
    case: tuple[str, str, Callable[[Path], None]],
    folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system, kind, damage = case
    folder = tmp_path / "data"
    shutil.copytree(folders[system], folder)
    file = of_kind(folder, kind)
    if file is None:
        assert (system, kind) in ABSENT, f"no {kind} in the folder"
        return
    damage(file)
    code, found = examined(capsys, folder, "--deep")
    named = [one for one in wrong(found) if one["file"] == str(file)]
    assert named, (file, found["findings"])
    assert code == 1
    assert all(one["reason"] and one["action"] for one in named)
    if kind == "*-0/*.log" and damage is flipped:
        assert named[0]["byte"] is not None
        assert named[0]["last_offset"] >= named[0]["first_offset"] >= 0


def test_a_flipped_bit_in_a_closed_segment_is_one_batch(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(folders["klamm"], folder)
    segments = sorted(folder.glob("orders-0/*.log"))
    assert len(segments) > 2
    flipped(segments[1])
    assert examined(capsys, folder)[0] == 0, "the headers are right, and the stop was clean"
    code, found = examined(capsys, folder, "--deep")
    (damage,) = wrong(found)
    assert (code, damage["kind"], damage["file"]) == (1, "damaged", str(segments[1]))
    assert damage["first_offset"] == damage["last_offset"], "a batch of one record"
    assert "checksum" in damage["reason"]
    assert "CORRUPT_MESSAGE" in damage["action"]
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / "recovery-point-offset-checkpoint").unlink()
    assert str(segments[1]) in {one["file"] for one in wrong(examined(capsys, folder)[1])}, "a start reads it then"
    assert run(["storage", "check", str(folder), "--deep"]) == 1
    said = capsys.readouterr()
    assert f"damaged: {segments[1]}, byte {damage['byte']}, offset {damage['first_offset']}: checksum" in said.out
    assert "1 damaged" in said.err


def test_known_damage_is_not_a_torn_write(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(folders["klamm"], folder)
    # As a power cut leaves it, above all checkpoints.
    for name in (
        ".kafka_cleanshutdown",
        "klamm-clean-stop",
        "klamm-boot-id",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ):
        (folder / name).unlink()
    segment = sorted(folder.glob("orders-0/*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[512 * 100 : 512 * 101] = bytes(512)
    segment.write_bytes(data)
    ends = folder / "klamm-proven-end-checkpoint"

    def damage() -> dict[str, Any]:
        found = examined(capsys, folder)[1]
        (one,) = [one for one in found["findings"] if one["file"] == str(segment) and "checksum" in one["reason"]]
        return dict(one)

    torn = damage()
    assert (torn["kind"], "the log is cut here" in torn["action"]) == ("note", True)
    ends.write_text(f"0\n1\norders 0 {RECORDS}\n")
    known = damage()
    assert (known["kind"], known["first_offset"]) == ("damaged", torn["first_offset"])
    assert "CORRUPT_MESSAGE" in known["action"]
    ends.write_text("0\n1\norders 0\n")
    assert damage() == torn
    assert str(ends) in {one["file"] for one in wrong(examined(capsys, folder)[1])}


@pytest.mark.parametrize("options", [[], ["--deep"]])
def test_a_killed_node_left_nothing_damaged(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tarfile.open(GOLDEN / "killed.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with NodeProcess(tmp_path / "klamm") as node:
        with Client(node.bootstrap) as client:
            create(client, ["orders"])
            producer = Producer(client, "orders", "none", None)
            producer.add((-1, None, b"v", []))
            producer.flush()
        node.kill()
    for name in ("killed", "klamm"):
        code, found = examined(capsys, tmp_path / name, *options)
        assert (code, wrong(found)) == (0, [])
        assert not found["directories"][0]["clean"]


@pytest.mark.parametrize("change", [emptied, removed])
def test_lost_records_of_the_active_segment_are_missing(
    change: Callable[[Path], None], folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(folders["klamm"], folder)
    segments = sorted(folder.glob("orders-0/*.log"))
    change(segments[-1])
    code, found = examined(capsys, folder)
    missing = [one for one in wrong(found) if one["last_offset"] == RECORDS - 1]
    assert code == 1
    assert missing, found["findings"]
    assert int(segments[-1].stem) == missing[0]["first_offset"]


def test_a_changed_topic_id_is_found(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(folders["klamm"], folder)
    file = folder / "orders-0" / "partition.metadata"
    file.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    code, found = examined(capsys, folder)
    (damage,) = wrong(found)
    assert (code, damage["file"]) == (1, str(file))
    assert "stray" in damage["action"]


def test_a_folder_of_one_log(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examined(capsys, folders["klamm"] / "orders-0", "--deep")
    assert (code, wrong(found)) == (0, [])
    (log,) = found["directories"][0]["logs"]
    assert (log["start_offset"], log["end_offset"], log["batches"]) == (0, RECORDS, RECORDS)


def test_a_configuration_names_its_directories(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\n"
        f"log.dirs={folders['klamm']},{tmp_path / 'absent'}\n"
    )
    assert run(["storage", "check", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["path"] for one in found["directories"]] == [str(folders["klamm"]), str(tmp_path / "absent")]
    assert {one["file"] for one in wrong(found)} >= {str(tmp_path / "absent")}


def test_a_running_node_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with NodeProcess(tmp_path / "data") as node:
        assert run(["storage", "check", str(tmp_path / "data")]) == 2
        assert (
            f"{tmp_path / 'data'} is used by a running node, process {node.pid}: stop it first"
            in capsys.readouterr().err
        )
    assert run(["storage", "check", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_a_progress_bar(is_terminal: bool, folders: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "klamm", "storage", "check", str(folders["klamm"]), "--deep"]
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the terminal was closed
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    assert done.returncode == 0
    assert (b"checking" in shown) is is_terminal
    assert ("━".encode() in shown) is is_terminal
    assert b"everything is intact" in shown


def test_ctrl_c_ends_it(folders: dict[str, Path]) -> None:
    script = (
        "import sys\nfrom klamm.cli import main\nfrom klamm.cli.node import storage_check as command\n"
        "def interrupted(*_): raise KeyboardInterrupt\n"
        "examine = command.examine\n"
        "command.examine = lambda paths, deep, on_progress: examine(paths, deep=deep, on_progress=interrupted)\n"
        "sys.exit(main.run(['storage', 'check', sys.argv[1], '--deep']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folders["kafka"])], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "")
