"""The fast parser, which does not import typer, gives the same results as typer."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.cli.commands import commands
from klamm.cli.framework.app import parse
from klamm.cli.framework.command_group import Command, Group
from klamm.cli.framework.command_line import Parameter, parameters_of, read
from klamm.cli.framework.options import Argument, Option

LINES = 6


def every_command(group: Group = commands, *names: str) -> Iterator[tuple[str, ...]]:
    for name in group:
        member = group.find(name)
        if isinstance(member, Group):
            yield from every_command(member, *names, name)
        else:
            yield (*names, name)


def command_of(names: tuple[str, ...]) -> Command:
    member: Command | Group | None = commands
    for name in names:
        assert isinstance(member, Group)
        member = member.find(name)
    assert member is not None
    assert not isinstance(member, Group)
    return member


def value(parameter: Parameter, rng: random.Random) -> str:
    if parameter.convert is Path:
        return rng.choice(["/data/one", "server.properties", "a b"])
    if parameter.convert is str:
        return rng.choice(["orders", "a=b", "x:9092,y:9093", "größe", "2026-01-31T12:00", "*"])
    return str(rng.randrange(1, 2000))


def line(parameters: list[Parameter], rng: random.Random) -> list[str]:
    """Options in any order, with the arguments between them in any position."""
    options: list[list[str]] = []
    arguments: list[str] = []
    are_arguments_left_out = False
    for parameter in parameters:
        if not parameter.is_required and rng.random() < 0.4:
            are_arguments_left_out |= isinstance(parameter.declared, Argument)
            continue
        count = rng.randrange(1, 4) if parameter.is_list else 1
        if isinstance(parameter.declared, Argument):
            arguments += [] if are_arguments_left_out else [value(parameter, rng) for _ in range(count)]
            continue
        for _ in range(count):
            name = rng.choice(parameter.names)
            if parameter.is_flag:
                options.append([name])
            elif name.startswith("--") and rng.random() < 0.5:
                options.append([f"{name}={value(parameter, rng)}"])
            else:
                options.append([name, value(parameter, rng)])
    rng.shuffle(options)
    for number, word in enumerate(arguments):
        options.insert(rng.randint(number, len(options)) if number == 0 else len(options), [word])
    return [word for option in options for word in option]


@pytest.mark.parametrize("names", list(every_command()), ids=" ".join)
def test_both_parsers_give_the_same_result(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KLAMM_BOOTSTRAP", raising=False)
    command = command_of(names)
    parameters = parameters_of(command)
    rng = random.Random(" ".join(names))
    for _ in range(LINES):
        words = [*names, *line(parameters, rng)]
        ours, theirs = read(commands, words), parse(words)
        assert not isinstance(theirs, int), words
        assert theirs.function is command
        if ours is None:
            assert names == ("mirror",), words  # its interval may be a fraction
            continue
        assert ours.function is command
        # An absent option has the default of the command.
        defaults = {name: found for name, found in theirs.values.items() if name not in ours.values}
        assert defaults == {name: found for name, found in own_defaults(command).items() if name in defaults}
        assert ours.values | defaults == theirs.values, words


def own_defaults(command: Command) -> dict[str, object]:
    return {name: one.default for name, one in inspect.signature(command).parameters.items()}


@pytest.mark.parametrize("names", list(every_command()), ids=" ".join)
def test_every_flag_declares_its_name_so_that_typer_adds_no_opposite(names: tuple[str, ...]) -> None:
    for one in parameters_of(command_of(names)):
        assert not (one.is_flag and isinstance(one.declared, Option) and not one.declared.names), one.name


@pytest.mark.parametrize(
    "words",
    [
        "",
        "topics",
        "topcis list",
        "topics list --help",
        "topics list -h",
        "topics list --jsn",
        "topics list --json=1",
        "topics list --json --json orders",
        "topics list --bootstrap",
        "topics list --bootstrap a --bootstrap b",
        "topics list -blocalhost:9092",
        "topics list -b=localhost:9092",
        "topics list -- --json",
        "topics list --bootstrap --json",
        "topics list orders",
        "topics create",
        "topics create orders -p 0",
        "topics create orders -p 1_000",
        "topics create orders -p 007",
        "topics create orders -p ²",
        "topics create orders -c \udcff",
        "topics alter orders",
        "configs describe topic orders again",
        "consume orders --partition -1",
        "consume orders --from -10",
    ],
)
def test_invalid_and_rare_lines_are_left_to_typer(words: str) -> None:
    assert read(commands, words.split(" ") if words else []) is None


def test_the_environment_replaces_an_absent_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", "elsewhere:9092")
    monkeypatch.setenv("KLAMM_DATA", "/data")
    for words in (["topics", "list"], ["topics", "list", "-b", "here:9092"], ["metadata", "at", "end"]):
        ours, theirs = read(commands, words), parse(words)
        assert ours is not None
        assert not isinstance(theirs, int)
        assert ours.values.items() <= theirs.values.items()
    assert ours.values == {"moment": "end", "data": Path("/data"), "bootstrap_server": "elsewhere:9092"}
    monkeypatch.setenv("KLAMM_BOOTSTRAP", "")
    assert read(commands, ["topics", "list"]) == (command_of(("topics", "list")), {})
