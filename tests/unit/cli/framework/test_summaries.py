"""The list of commands imports none of them: it shows the summaries that the groups define."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest

from klamm.cli.commands import commands
from klamm.cli.framework.command_group import Elsewhere, Group

LIST = "from klamm.cli.main import run; import sys; code = run(%r); print(code, sorted(sys.modules))"


def every_elsewhere(group: Group) -> Iterator[tuple[Group, str, Elsewhere]]:
    for name, elsewhere in group.elsewhere.items():
        yield group, name, elsewhere
    for name in group:
        if isinstance(member := group.find(name), Group):
            yield from every_elsewhere(member)


@pytest.mark.parametrize(
    ("group", "name", "elsewhere"), [pytest.param(*one, id=one[1]) for one in every_elsewhere(commands)]
)
def test_a_summary_is_the_first_paragraph_of_the_help(group: Group, name: str, elsewhere: Elsewhere) -> None:
    member = group.find(name)
    assert member is not None
    assert elsewhere.is_group == isinstance(member, Group)
    text = member.help if isinstance(member, Group) else member.__doc__ or ""
    assert elsewhere.summary == inspect.cleandoc(text).partition("\n\n")[0].replace("\n", " ")


@pytest.mark.parametrize(("words", "shown"), [(["--help"], "topics "), (["--version"], "klamm "), ([], "topics ")])
def test_the_list_of_commands_imports_none(words: list[str], shown: str) -> None:
    done = subprocess.run([sys.executable, "-c", LIST % words], capture_output=True, text=True, check=True)
    assert shown in done.stdout
    imported = done.stdout.splitlines()[-1]
    for elsewhere in commands.elsewhere.values():
        module = elsewhere.place.partition(":")[0]
        assert module == "klamm.cli.commands" or f"'{module}'" not in imported
    assert ("'typer'" in imported) == (words != ["--version"])
