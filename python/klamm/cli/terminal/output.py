"""What the commands print: tables for a person, JSON for a machine. Answers go to stdout, everything else to stderr.

rich is imported where there is a terminal (`terminal`); elsewhere the same lines are written without it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, TextIO

from klamm.cli.framework.options import Option
from klamm.cli.terminal.exits import Abort
from klamm.cli.terminal.plain_table import plain_table
from klamm.client import ClientError

_PANEL: Final = "Where and how"
Bootstrap = Annotated[
    str,
    Option(
        "--bootstrap",
        "-b",
        envvar="KLAMM_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Any broker of the cluster.",
        panel=_PANEL,
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.", panel=_PANEL)]
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
_WIDTH_MAX: Final = 10_000
_ASKED_FOR_COLOR: Final = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables with which rich treats a file as a terminal, or a terminal as a file."""
_CONTROL: Final = dict.fromkeys((7, 8, 11, 12, 13))
"""Characters with which data from a broker could overwrite the screen: rich removes the same."""


def print_json(value: Any) -> None:
    """One JSON document."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table; columns whose names begin with `#` contain numbers and are right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not is_terminal(sys.stdout):
        plain = plain_table(columns, cells, title=title, width_max=_WIDTH_MAX)
        if plain is not None:
            print(plain)
            return
    from klamm.cli.terminal.styled import show_table

    show_table(columns, cells, title=title)


def confirm(question: str) -> None:
    """Ask for confirmation before data is lost. Raises ClientError without a terminal, Abort if the answer is no."""
    if not sys.stdin.isatty():
        raise ClientError(f"{question} There is no terminal to answer on: give --yes")
    import typer

    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        raise Abort from None


def examples(text: str, *lines: str) -> str:
    """The help of a group of commands, which teaches by example as each command's does."""
    return "\n".join([text, "", "\b", "[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


def print_deleted(names: Sequence[str], *, as_json: bool) -> None:
    """Print what a command has deleted."""
    if as_json:
        print_json({"deleted": list(names)})
    else:
        say(f"deleted: {', '.join(names)}")


def say(text: str) -> None:
    """A line for a person, on stderr, so that stdout stays an answer."""
    print(text.translate(_CONTROL).expandtabs(8), file=sys.stderr)


def say_error(text: str) -> None:
    """Print an error on stderr."""
    if not is_terminal(sys.stderr):
        say(f"error: {text}")
        return
    from klamm.cli.terminal.styled import show_error

    show_error(text)


def say_aborted() -> None:
    """Print on stderr that the user ended the command."""
    if not is_terminal(sys.stderr):
        say("Aborted.")
        return
    from klamm.cli.terminal.styled import errors

    errors.print("Aborted.", style="red")


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """A counter on stderr during an operation, on a terminal only. Yields the function that updates it."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from klamm.cli.terminal.styled import errors

    with errors.status(what) as status:
        yield lambda count: status.update(f"{what}: {count}")


def is_terminal(stream: TextIO) -> bool:
    """Whether rich may take the stream for a terminal, which a variable may demand."""
    return any(name in os.environ for name in _ASKED_FOR_COLOR) or stream.isatty()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
