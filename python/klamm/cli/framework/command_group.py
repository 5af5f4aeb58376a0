"""Commands by name, each imported when it is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import NamedTuple, TypeVar

Command = Callable[..., None]
"""A command. Its parameters are annotated with `Option` and `Argument`; its docstring is its help."""
C = TypeVar("C", bound=Command)


class Elsewhere(NamedTuple):
    """A command or a group of another module."""

    place: str
    """`package.module:attribute`; the attribute of a group is `group`."""
    summary: str
    """The first paragraph of its help, so that a list of commands imports none of them."""

    @property
    def is_group(self) -> bool:
        """Whether it has commands of its own."""
        return self.place.endswith(":group")


class Group:
    """The commands below one name, in the order in which the help lists them."""

    def __init__(self, help: str, elsewhere: Mapping[str, Elsewhere] | None = None) -> None:
        """`elsewhere`: commands and groups of other modules by name."""
        self.help = help
        self.elsewhere: Mapping[str, Elsewhere] = elsewhere or {}
        self._members: dict[str, Command | Elsewhere] = dict(self.elsewhere)

    def command(self, name: str) -> Callable[[C], C]:
        """A decorator that adds a command."""

        def add(function: C) -> C:
            self._members[name] = function
            return function

        return add

    def find(self, name: str) -> Command | Group | None:
        """The member with this name, imported now; None if there is none."""
        member = self._members.get(name)
        if member is None or not isinstance(member, Elsewhere):
            return member
        module, _, attribute = member.place.partition(":")
        found: Command | Group = getattr(import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        """The names of the members."""
        return iter(self._members)
