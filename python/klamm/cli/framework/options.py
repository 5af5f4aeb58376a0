"""Declarations of options and arguments: `Annotated[int, Option("--count", min=1)]`.

The keywords are typer's, and `app` passes them to typer for help, errors and completion. They are not typer's own
objects, because a correct command line runs without importing typer (`command_line`).
"""

from __future__ import annotations

from typing import Any


class Argument:
    """A value by its position. A list parameter takes all remaining words."""

    __slots__ = ("help", "metavar", "min")

    def __init__(self, *, help: str | None = None, metavar: str | None = None, min: int | None = None) -> None:
        """`min`: the smallest number allowed."""
        self.help, self.metavar, self.min = help, metavar, min

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of typer's class of the same name."""
        return {name: getattr(self, name) for name in self.__slots__}


class Option:
    """A value by its name, or a flag for a bool parameter. A list parameter may be repeated."""

    __slots__ = ("envvar", "help", "metavar", "min", "names", "panel")

    def __init__(
        self,
        *names: str,
        help: str | None = None,
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,
        panel: str | None = None,
    ) -> None:
        """`names`: by default the parameter's name with dashes. `envvar`: the variable to use if the option is absent.

        `min`: the smallest number allowed. `panel`: the heading in the help.
        """
        self.names, self.help, self.metavar = names, help, metavar
        self.envvar, self.min, self.panel = envvar, min, panel

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of typer's class of the same name; the names are its positional arguments."""
        given = {name: getattr(self, name) for name in ("help", "metavar", "envvar", "min")}
        return given | {"rich_help_panel": self.panel}
