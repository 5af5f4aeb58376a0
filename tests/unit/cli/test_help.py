"""The help of every command shows its texts as they were written: no bracket is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
import typer

from klamm.cli.app import app
from klamm.cli.main import run

_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)]")
_BRACKETS = re.compile(r"\\?(\[[a-z][a-z.,]*])")


def commands() -> Iterator[tuple[list[str], click.Command]]:
    """Every command and group with the words that call it."""
    root = typer.main.get_command(app)
    waiting: list[tuple[list[str], click.Command]] = [([], root)]
    while waiting:
        words, command = waiting.pop()
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
            waiting += [([*words, name], one) for name, one in found if one is not None]


FOUND = {" ".join(words): (words, command) for words, command in commands()}


@pytest.mark.parametrize("name", FOUND)
def test_brackets_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, command = FOUND[name]
    texts = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
    wanted = {bracket for text in texts for bracket in _BRACKETS.findall(_MARKUP.sub("", text))}
    assert run([*words, "--help"]) == 0
    said = capsys.readouterr().out
    missing = {bracket for bracket in wanted if bracket not in said}
    assert not missing, f"write \\\\{min(missing)}: rich takes it for markup"


def test_what_an_archive_needs_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["archive", "--help"]) == 0
    assert "pip install 'klamm[spark]'" in capsys.readouterr().out
