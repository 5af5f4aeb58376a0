"""What the commands print: tables for a person, JSON for a machine. Answers go to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from klamm.admin.connection import ClientError

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="KLAMM_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Any broker of the cluster.",
        rich_help_panel="Where and how",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Where and how")]
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
PIPED_WIDTH: Final = 10_000
"""Columns where no terminal has any: what reads on expects a row to be a line."""

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table; columns whose name begins with `#` hold numbers and stand to the right."""
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Text, not str: what a broker sent is shown and not taken for markup.
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)


def confirm(question: str) -> None:
    """Ask before something is lost. Raises ClientError where nobody can be asked, typer.Abort when the answer is no."""
    if not sys.stdin.isatty():
        raise ClientError(f"{question} There is no terminal to answer on: say --yes")
    typer.confirm(question, abort=True, err=True)


def examples(text: str, *lines: str) -> str:
    """The help of a group of commands, which teaches by example as each command's does."""
    return "\n".join([text, "", "\b", "[bold]Examples[/bold]", *(f"  {line}" for line in lines)])


def tell_deleted(names: Sequence[str], *, as_json: bool) -> None:
    """What a command has deleted."""
    if as_json:
        print_json({"deleted": list(names)})
    else:
        say(f"deleted: {', '.join(names)}")


def say(text: str) -> None:
    """A line for a person, on stderr, so that stdout stays an answer."""
    errors.print(Text(text), soft_wrap=True)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """A line on stderr that counts while something goes on, for a terminal only. Gives the function to count with."""
    if not errors.is_terminal:
        yield lambda _: None
        return
    with errors.status(what) as status:
        yield lambda count: status.update(f"{what}: {count}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
