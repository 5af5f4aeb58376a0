"""Commands by name, each imported when it is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TypeVar

Command = Callable[..., None]
"""A command's parameters are annotated with `Option` and `Argument`; its docstring is its help."""
C = TypeVar("C", bound=Command)


class Group:
    """The commands below one name, in the order in which the help lists them."""

    def __init__(self, help: str, elsewhere: Mapping[str, str] | None = None) -> None:
        """`elsewhere`: commands and groups of other modules by name, as `package.module:attribute`."""
        self.help = help
        self._members: dict[str, Command | str] = dict(elsewhere or {})

    def command(self, name: str) -> Callable[[C], C]:
        """A decorator that adds a command."""

        def add(function: C) -> C:
            self._members[name] = function
            return function

        return add

    def find(self, name: str) -> Command | Group | None:
        """The member of that name, imported now; None where there is none."""
        member = self._members.get(name)
        if member is None or not isinstance(member, str):
            return member
        module, _, attribute = member.partition(":")
        found: Command | Group = getattr(import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        """The names of the members."""
        return iter(self._members)
