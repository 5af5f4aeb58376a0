"""`klamm storage format` compared with `kafka-storage format`: both reject the same, and create the same voters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from klamm.cli.main import run
from tests.interop.apache_kafka import Tools

CLUSTER = "FvjQxYFg87C04O1gjhM2ag"
ONE, TWO, THREE = "AAAAAAAAAAAAAAAAAAABAQ", "6vzsYB21RLmPdRRXY4KFpw", "3p9ZCqLVT1uFqZ4kZgbG6g"
INITIAL = f"1@localhost:9093:{ONE},2@localhost:9094:{TWO},3@localhost:9095:{THREE}"
STATIC = {"controller.quorum.voters": "1@localhost:9093"}
DYNAMIC = {"controller.quorum.bootstrap.servers": "localhost:9093"}
BROKER = DYNAMIC | {"process.roles": "broker", "listeners": "PLAINTEXT://localhost:9092"}
BOTH = {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}

# Settings and options.
MADE: list[tuple[Mapping[str, str], str]] = [
    (STATIC, ""),
    (STATIC, "--no-initial-controllers"),
    (STATIC | DYNAMIC, ""),
    (STATIC, "--feature kraft.version=0"),
    (STATIC, "--release-version 4.3.9"),
    (STATIC, "--feature metadata.version=30"),
    (STATIC, "--feature ' group.version = 1 '"),
    (STATIC, "--feature group.version=0 --feature group.version=1"),
    (STATIC, "--feature transaction.version=2 --release-version 3.7"),
    (STATIC, "--add-scram 'SCRAM-SHA-256=[name=alice,password=alice-secret]'"),
    (BROKER, ""),
    (BROKER, "--no-initial-controllers"),
    (BROKER, f"--initial-controllers {INITIAL}"),
    (DYNAMIC, "--standalone"),
    (DYNAMIC, "--standalone --standalone"),
    (DYNAMIC, "--standalone --feature kraft.version=1"),
    (DYNAMIC, "--standalone --release-version 3.3-IV3"),
    (DYNAMIC | BOTH, "--standalone"),
    (DYNAMIC | {"advertised.listeners": "CONTROLLER://elsewhere:7777"}, "--standalone"),
    (DYNAMIC | {"listeners": "CONTROLLER://:9093"}, "--standalone"),
    (DYNAMIC | {"log.dirs": "FOLDER/a,FOLDER/b"}, "--standalone"),
    (DYNAMIC | {"log.dirs": "FOLDER/a,FOLDER/b", "metadata.log.dir": "FOLDER/m"}, "--standalone"),
    (DYNAMIC, "--no-initial-controllers"),
    (DYNAMIC, f"--initial-controllers {INITIAL}"),
    (DYNAMIC, f"--initial-controllers ' {INITIAL.replace(',', ' , ')} '"),
    (DYNAMIC, f"--initial-controllers {INITIAL.replace(',', ',,')},"),
    (DYNAMIC, f"--initial-controllers {INITIAL.partition(',')[2]}"),
    (DYNAMIC, f"--initial-controllers {INITIAL.replace('9093', '9999')}"),
    (DYNAMIC, f"--initial-controllers {INITIAL.replace('1@localhost', '1@elsewhere')}"),
    (DYNAMIC, f"--initial-controllers 1@[::1]:9093:{ONE}"),
    (DYNAMIC, f"--initial-controllers 1@localhost:0:{ONE}"),
    (DYNAMIC, f"--initial-controllers 1@localhost:9093:{ONE},2@localhost:9093:{ONE}"),
]
REFUSED: list[tuple[Mapping[str, str], str]] = [
    ({}, "--standalone"),
    (STATIC, "--standalone"),
    (STATIC, f"--initial-controllers {INITIAL}"),
    (STATIC, "--feature kraft.version=1"),
    ({"controller.quorum.voters": "2@localhost:9093"}, ""),
    (BROKER, "--standalone"),
    (DYNAMIC, ""),
    (DYNAMIC, "--standalone --no-initial-controllers"),
    (DYNAMIC, f"--standalone --initial-controllers {INITIAL}"),
    (DYNAMIC, f"--no-initial-controllers --initial-controllers {INITIAL}"),
    (DYNAMIC, "--standalone --feature kraft.version=0"),
    (DYNAMIC, "--standalone --feature kraft.version=2"),
    (DYNAMIC, "--no-initial-controllers --feature kraft.version=0"),
    *(
        (DYNAMIC, f"--initial-controllers '{text}'")
        for text in (
            "",
            ",",
            f"1@::1:9093:{ONE}",
            f"1@[::1:9093:{ONE}",
            f"1@localhost:65536:{ONE}",
            f"1@localhost:-1:{ONE}",
            f"1@localhost:x:{ONE}",
            f"1@localhost:{ONE}",
            f"@localhost:9093:{ONE}",
            f"localhost:9093:{ONE}",
            f"-1@localhost:9093:{ONE}",
            f"x@localhost:9093:{ONE}",
            f"2147483648@localhost:9093:{ONE}",
            "1@localhost:9093",
            "1@localhost:9093:",
            "1@localhost:9093:abc",
            f"1@localhost:9093:{ONE}abcdefgh",
            "1@localhost:9093:!!zsYB21RLmPdRRXY4KFpw",
            f"1@localhost:9093:{ONE},1@localhost:9094:{TWO}",
        )
    ),
    *((STATIC, f"--release-version {release}") for release in ("3.0", "5.0", "4.4-IV0", "4.3-IV9", "4", "x")),
    (STATIC, "--feature metadata.version=30 --release-version 4.3"),
    *((STATIC, f"--feature {name}") for name in ("metadata.version=31", "metadata.version=6", "none.version=1")),
    *((STATIC, f"--feature group.version{level}") for level in ("=2", "=-1", "=x", "")),
    (STATIC, "--feature eligible.leader.replicas.version=1 --release-version 3.9"),
    (STATIC, "--add-scram nonsense"),
    (STATIC, "--add-scram 'SCRAM-SHA-256=[name=alice,password=secret,iterations=10]'"),
]


def properties(folder: Path, settings: Mapping[str, str]) -> Path:
    folder.mkdir()
    file = folder / "server.properties"
    given = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": "FOLDER/data",
        **settings,
    }
    file.write_text("".join(f"{key}={value.replace('FOLDER', str(folder))}\n" for key, value in given.items()))
    return file


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def voters(tools: Tools, folder: Path) -> list[str]:
    """The control records of the first snapshot, as the dump tool shows them, without random directory ids."""
    checkpoints = sorted(folder.rglob("00000000000000000000-0000000000.checkpoint"))
    if not checkpoints:
        return []
    [meta] = [path.parent.parent / "meta.properties" for path in checkpoints]
    own = dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)["directory.id"]
    shown = tools("dump-log", "--cluster-metadata-decoder", "--files", str(checkpoints[0])).stdout
    records = [line.partition("headerKeys: [] ")[2] for line in shown.splitlines() if "KRaft" in line]
    assert len(records) == 2, shown
    return records if ONE in records[1] or TWO in records[1] else [one.replace(own, "OWN") for one in records]


def test_both_create_the_same_files(tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (settings, options) in enumerate(MADE):
        ours = properties(tmp_path / f"k{number}", settings)
        theirs = properties(tmp_path / f"j{number}", settings)
        command = ["format", "-t", CLUSTER, *shlex.split(options)]
        tools("storage", *command, "-c", str(theirs))
        assert run(["storage", *command, "-c", str(ours)]) == 0, (settings, options, capsys.readouterr().err)
        assert files(ours.parent) == files(theirs.parent), options
        # Java writes an IPv6 address in its long form.
        written = [record.replace('"::1"', '"0:0:0:0:0:0:0:1"') for record in voters(tools, ours.parent)]
        assert written == voters(tools, theirs.parent), options
        # Each accepts the snapshot that the other wrote.
        shown = tools("storage", "info", "-c", str(ours)).stdout
        assert f"cluster.id={CLUSTER}" in shown
        assert "roblem" not in shown
        assert run(["storage", "info", "-c", str(theirs)]) == 0


def test_both_reject_the_same_options(tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, (settings, options) in enumerate(REFUSED):
        ours = properties(tmp_path / f"k{number}", settings)
        theirs = properties(tmp_path / f"j{number}", settings)
        command = ["format", "-t", CLUSTER, *shlex.split(options)]
        assert tools("storage", *command, "-c", str(theirs), check=False).returncode != 0, (settings, options)
        assert run(["storage", *command, "-c", str(ours)]) != 0, (settings, options)
        assert "Traceback" not in capsys.readouterr().err
        assert files(ours.parent) == ["server.properties"], options
        assert tools("storage", "info", "-c", str(theirs), check=False).returncode != 0, "nothing is formatted"
        assert run(["storage", "info", "-c", str(ours)]) != 0
