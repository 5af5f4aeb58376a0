from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from klamm.cli.main import run
from klamm.cli.records.positions import Position, parse_position
from klamm.cli.records.printer import _json_value, _text
from klamm.cli.records.record_input import RecordInput
from klamm.cli.terminal.output import print_table
from klamm.client import ClientError
from klamm.protocol.uuids import parse_uuid

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


def properties(folder: Path, **changes: str) -> str:
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "log.dirs": str(folder / "data"),
    } | changes
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return str(file)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "topics",
        "topics create",
        "produce",
        "consume",
        "audit",
        "groups",
        "transactions",
        "configs",
        "features",
        "metadata",
        "quorum",
        "storage",
        "archive",
        "restore",
    ],
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert "Usage: klamm" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "",
        "topics",
        "groups",
        "configs",
        "features",
        "features describe",
        "features upgrade",
        "features downgrade",
        "features disable",
        "metadata",
        "metadata tail",
        "metadata at",
        "metadata diff",
        "metadata why",
        "quorum",
        "quorum status",
        "quorum add",
        "quorum remove",
        "quorum doctor",
        "quorum recover",
        "storage",
        "storage check",
        "topics create",
        "start",
        "produce",
        "consume",
        "groups reset-offsets",
        "transactions",
        "transactions list",
        "transactions describe",
        "transactions find-hanging",
        "transactions abort",
    ],
)
def test_help_contains_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([*command.split(), "--help"])
    assert f" klamm {command} ".replace("  ", " ") in capsys.readouterr().out.partition("Examples")[2]


def test_without_a_terminal_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "#COUNT"), [("x" * 249, 1), ("y z", 2)])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "COUNT"],
        ["x" * 249, "1"],
        ["y", "z", "2"],
    ]


def test_without_a_terminal_deletions_need_a_confirmation_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(["topics", "delete", "orders", "--bootstrap", "localhost:1"]) == 1
    assert "no terminal to answer on: give --yes" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "klamm 0.1.0\n"


def test_an_unknown_command_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topcis"]) == 2
    assert "No such command 'topcis'" in capsys.readouterr().err


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--bootstrap", "nowhere:port"]) == 1
    assert capsys.readouterr().err == "error: 'nowhere:port' is not host:port\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--group g --partition 0", "exclude each other"),
        ("--offset 1", "--offset needs --partition"),
        ("--partition 0 --offset -1", "neither earliest nor latest"),
        ("--partition 0 --offset soon", "neither earliest nor latest"),
        ("--partition 0 --offset 1 --from-beginning", "give one of"),
        ("--from end --from-beginning", "give one of"),
    ],
)
def test_the_first_steps_are_printed_once(options: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "orders", *options.split()]) == 2
    assert complaint in " ".join(capsys.readouterr().err.replace("│", " ").split())


class TestStorage:
    def test_format_then_info(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = properties(tmp_path)
        assert run(["storage", "info", "-c", file]) == 1
        assert capsys.readouterr().out == f"problem: {tmp_path / 'data'} is not formatted\n"
        assert run(["storage", "format", "-c", file, "-t", CLUSTER, "-r", "4.1", "-f", "group.version=1"]) == 0
        assert capsys.readouterr().out == f"Formatting {tmp_path / 'data'} with metadata.version 4.1-IV1.\n"
        assert run(["storage", "info", "-c", file, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["problems"] == []
        assert found["directories"][str(tmp_path / "data")]["cluster.id"] == CLUSTER

    def test_a_second_format_needs_ignore_formatted(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["storage", "format", "--config", properties(tmp_path), "--cluster-id", CLUSTER]
        assert run(command) == 0
        assert run(command) == 1
        assert "is formatted already" in capsys.readouterr().err
        assert run([*command, "--ignore-formatted"]) == 0
        assert run(["storage", "info", "-c", properties(tmp_path, **{"node.id": "1"})]) == 0

    def test_info_names_the_problem(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(["storage", "format", "-c", properties(tmp_path), "-t", CLUSTER])
        file = properties(tmp_path, **{"node.id": "2", "controller.quorum.voters": "2@localhost:9093"})
        assert run(["storage", "info", "-c", file]) == 1
        assert "node.id is 1, but the configuration says node.id=2" in capsys.readouterr().out

    def test_options_that_exclude_each_other(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["storage", "format", "-c", properties(tmp_path), "-t", CLUSTER, "-s", "-N"]) == 2
        assert run(["storage", "format", "-c", properties(tmp_path), "-t", CLUSTER, "-s"]) == 1
        assert "controller.quorum.voters is set" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("release", "levels"),
        [("3.3", [7, 0, 0, 0, 0, 0, 0]), ("4.0-IV1", [23, 1, 0, 1, 0, 0, 0]), ("4.3.1", [30, 1, 2, 1, 1, 1, 1])],
    )
    def test_the_features_of_a_release(
        self, release: str, levels: list[int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["storage", "version-mapping", "-r", release]) == 0
        assert capsys.readouterr().out.startswith(
            f"metadata.version={levels[0]} ({release})\nkraft.version={levels[1]}\n"
        )
        assert run(["storage", "version-mapping", "-r", release, "--json"]) == 0
        assert list(json.loads(capsys.readouterr().out).values()) == levels

    def test_what_a_feature_needs(self, capsys: pytest.CaptureFixture[str]) -> None:
        feature = "eligible.leader.replicas.version=1"
        assert run(["storage", "feature-dependencies", "-f", feature, "-f", "group.version=1"]) == 0
        expected = f"{feature} requires:\n    metadata.version=23 (4.0-IV1)\ngroup.version=1 has no dependencies.\n"
        assert capsys.readouterr().out == expected
        assert run(["storage", "feature-dependencies", "-f", feature, "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert found["needs"] == {"metadata.version": 23}

    @pytest.mark.parametrize(
        ("command", "complaint"),
        [
            ("version-mapping -r 9.9", "9.9 is not known"),
            ("feature-dependencies -f group.version", "is not name=level"),
            ("feature-dependencies -f group.version=7", "the level must be within 0-1"),
            ("feature-dependencies -f colour=1", "--feature colour: there are"),
        ],
    )
    def test_unknown_releases_and_features_are_named(
        self, command: str, complaint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["storage", *command.split()]) == 1
        assert complaint in capsys.readouterr().err

    def test_random_uuid(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["storage", "random-uuid"]) == 0
        assert len(parse_uuid(capsys.readouterr().out.strip())) == 16


class TestPositions:
    @pytest.mark.parametrize(
        ("text", "position"),
        [
            ("beginning", Position(timestamp=-2)),
            ("end", Position(timestamp=-1)),
            ("42", Position(offset=42)),
            ("-10", Position(distance=-10)),
            ("+10", Position(distance=10)),
            ("2026-01-31T12:00:00+00:00", Position(timestamp=1769860800000)),
        ],
    )
    def test_valid_positions(self, text: str, position: Position) -> None:
        assert parse_position(text) == position

    @pytest.mark.parametrize("text", ["", "middle", "1.5", "+", "31.1.2026"])
    def test_invalid_positions(self, text: str) -> None:
        with pytest.raises(ClientError, match="is not a position"):
            parse_position(text)


class TestRecords:
    def read(
        self, *words: str, key: str | None = None, separator: str | None = None, as_json: bool = False
    ) -> list[tuple[object, object, object]]:
        given = RecordInput(key=key, separator=separator, headers=[], as_json=as_json)
        return [(key, value, list(headers)) for _, key, value, headers in given.of_words(words)]

    def test_lines(self) -> None:
        assert self.read("a", "") == [(None, b"a", []), (None, b"", [])]
        assert self.read("k:v:w", separator=":") == [(b"k", b"v:w", [])]
        assert self.read("a", key="k") == [(b"k", b"a", [])]
        with pytest.raises(ClientError, match="line 2 has no ':'"):
            self.read("k:v", "kv", separator=":")

    def test_json_lines(self) -> None:
        line = '{"value": {"a": 1}, "key": 7, "headers": {"h": "x", "n": null}}'
        assert self.read(line, '{"value": null}', as_json=True) == [
            (b"7", b'{"a": 1}', [("h", b"x"), ("n", None)]),
            (None, None, []),
        ]
        for wrong in ("{", "[]", '{"key": 1}', '{"value": 1, "timestamp_ms": "x"}'):
            with pytest.raises(ClientError, match="line 1"):
                self.read(wrong, as_json=True)

    def test_arbitrary_bytes_are_accepted(self, tmp_path: Path) -> None:
        file = tmp_path / "lines"
        file.write_bytes(b"a\xff:\xfe\r\nb:\x00\n\nlast:line")
        given = RecordInput(key=None, separator=":", headers=["h=\udcff"], as_json=False)
        rows = given.of_file(file)
        assert [next(rows)[1:], next(rows)[1:]] == [
            (b"a\xff", b"\xfe", [("h", b"\xff")]),
            (b"b", b"\x00", [("h", b"\xff")]),
        ]
        with pytest.raises(ClientError, match="line 3 has no ':'"):
            next(rows)
        for missing in (tmp_path, tmp_path / "none"):
            with pytest.raises(ClientError, match=f"cannot read {missing}"):
                next(given.of_file(missing))
        assert self.read('{"value": "\\ud800"}', as_json=True) == [(None, b"\xed\xa0\x80", [])]
        for wrong in (b'{"value": "\xff"}', b'{"value": 1, "headers": [1]}'):
            with pytest.raises(ClientError, match="line 1"):
                list(RecordInput(key=None, separator=None, headers=[], as_json=True).of_lines([wrong]))

    def test_bytes_that_are_no_text_are_shown(self) -> None:
        assert _text(b"a\xff") == "a\\xff"
        assert _text(None) == "null"
        assert _json_value(b"\xff") == {"base64": "/w=="}
        assert _json_value("ä".encode()) == "ä"
