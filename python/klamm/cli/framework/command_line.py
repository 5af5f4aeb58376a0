"""Reads a correct command line without typer, whose import takes longer than most commands.

Everything else is left to typer (`app`), which prints help and errors: unknown words, missing or invalid values, and
correct but rare forms such as `-p12`, `--`, or a repeated option. Both read a line in the same way
(`tests/unit/cli/framework/test_command_line.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from klamm.cli.framework.command_group import Command, Group
from klamm.cli.framework.options import Argument, Option

_DIGITS_MAX: Final = 18


class Call(NamedTuple):
    """A command and the values of its parameters."""

    function: Command
    values: dict[str, Any]


class _LeftToTyperError(Exception):
    """The line is wrong or has a rare form."""


def read(group: Group, words: Sequence[str]) -> Call | None:
    """The call for the words; None if typer has to read them."""
    member: Command | Group | None = group
    rest = list(words)
    while isinstance(member, Group):
        member = member.find(rest.pop(0)) if rest else None
    if member is None:
        return None
    try:
        return Call(member, _values(parameters_of(member), rest))
    except _LeftToTyperError:
        return None


class Parameter:
    """One parameter of a command: its declaration, and how its value is parsed."""

    __slots__ = ("convert", "declared", "is_flag", "is_list", "is_required", "name")

    def __init__(self, name: str, annotation: Any, *, is_required: bool) -> None:
        """`annotation` is `Annotated` with an `Option` or an `Argument`."""
        kind, (declared,) = annotation.__origin__, annotation.__metadata__
        self.name, self.is_required = name, is_required
        self.declared: Option | Argument = declared
        # `T | None` is read as T.
        kinds = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
        self.is_list = get_origin(kinds[0]) is list
        (kind,) = get_args(kinds[0]) if self.is_list else kinds
        self.is_flag = kind is bool
        self.convert: Callable[[str], Any] = _CONVERSIONS.get(kind, _leave)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of an option; empty for an argument."""
        if isinstance(self.declared, Argument):
            return ()
        return self.declared.names or (f"--{self.name.replace('_', '-')}",)

    def value_of(self, text: str) -> Any:
        """Parse the value."""
        # An empty or non-UTF-8 value is rare and left to typer.
        if not text or not (text.isascii() or _is_unicode(text)):
            raise _LeftToTyperError
        value = self.convert(text)
        if self.declared.min is not None and value < self.declared.min:
            raise _LeftToTyperError
        return value


def parameters_of(command: Command) -> list[Parameter]:
    """The parameters of a command in order."""
    function: Any = command
    code = function.__code__
    hints = get_type_hints(command, include_extras=True)
    places = code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    optional = {*places[len(places) - len(function.__defaults__ or ()) :], *(function.__kwdefaults__ or ())}
    return [Parameter(name, hints[name], is_required=name not in optional) for name in names]


def _values(parameters: list[Parameter], words: Iterable[str]) -> dict[str, Any]:
    options = {name: parameter for parameter in parameters for name in parameter.names}
    values: dict[str, Any] = {}
    places: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            places.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and (option.is_flag or not name.startswith("--"))):
            raise _LeftToTyperError
        if not option.is_list and option.name in values:
            raise _LeftToTyperError
        if option.is_flag:
            values[option.name] = True
            continue
        text = text if equals else next(rest, "")
        if text.startswith("-"):
            raise _LeftToTyperError
        _put(values, option, text)
    _take_places(values, [one for one in parameters if isinstance(one.declared, Argument)], places)
    _look_around(values, parameters)
    if any(one.is_required and one.name not in values for one in parameters):
        raise _LeftToTyperError
    return values


def _take_places(values: dict[str, Any], arguments: list[Parameter], words: list[str]) -> None:
    """Assign words to arguments in order; only the last argument may be a list."""
    for argument in arguments:
        if argument.is_list and argument is not arguments[-1]:
            raise _LeftToTyperError
        taken, words = (words, []) if argument.is_list else (words[:1], words[1:])
        for word in taken:
            _put(values, argument, word)
    if words:
        raise _LeftToTyperError


def _look_around(values: dict[str, Any], parameters: list[Parameter]) -> None:
    """Take values of options from the environment."""
    for one in parameters:
        variable = one.declared.envvar if isinstance(one.declared, Option) else None
        if variable is not None and one.name not in values and (text := os.environ.get(variable)):
            if one.is_list or one.is_flag:
                raise _LeftToTyperError
            values[one.name] = one.value_of(text)


def _put(values: dict[str, Any], parameter: Parameter, text: str) -> None:
    value = parameter.value_of(text)
    if parameter.is_list:
        values.setdefault(parameter.name, []).append(value)
    else:
        values[parameter.name] = value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX or (text[0] == "0" and text != "0"):
        raise _LeftToTyperError
    return int(text)


def _leave(_: str) -> Any:
    raise _LeftToTyperError


_CONVERSIONS: Final[dict[Any, Callable[[str], Any]]] = {str: str, int: _number, Path: Path}
