"""The help of every command shows its texts unchanged: brackets are not interpreted as markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from klamm.cli.commands import commands
from klamm.cli.framework.command_group import Command, Group
from klamm.cli.framework.command_line import parameters_of
from klamm.cli.main import run

_MARKUP = re.compile(r"\[/?(?:bold|dim|italic)]")
_BRACKETS = re.compile(r"\\?(\[[a-z][a-z.,]*])")


def every_help(member: Command | Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command and group: its words on the command line, and its help texts."""
    if not isinstance(member, Group):
        yield words, [member.__doc__ or "", *(one.declared.help or "" for one in parameters_of(member))]
        return
    yield words, [member.help]
    for name in member:
        found = member.find(name)
        assert found is not None
        yield from every_help(found, (*words, name))


FOUND = {" ".join(words): (words, texts) for words, texts in every_help(commands)}


@pytest.mark.parametrize("name", FOUND)
def test_brackets_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, texts = FOUND[name]
    wanted = {bracket for text in texts for bracket in _BRACKETS.findall(_MARKUP.sub("", text))}
    assert run([*words, "--help"]) == 0
    said = capsys.readouterr().out
    missing = {bracket for bracket in wanted if bracket not in said}
    assert not missing, f"write \\\\{min(missing)}: rich takes it for markup"


def test_what_an_archive_needs_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["archive", "--help"]) == 0
    assert "pip install 'klamm[spark]'" in capsys.readouterr().out
