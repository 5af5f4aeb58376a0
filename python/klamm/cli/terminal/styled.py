"""Output with rich: on a terminal, and for text whose width only rich computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH: Final = 10_000
"""Columns where no terminal has any: what reads on expects a row to be a line."""

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None) -> None:
    """Print a table."""
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(table(columns, rows, title=title))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> Table:
    """A table; columns whose names begin with `#` are right-aligned."""
    # Text, not str: data from a broker is printed literally, and not interpreted as markup or emoji names.
    heading = None if title is None else Text(title, style="table.title")
    styled = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column.startswith("#")
        heading = Text(column.removeprefix("#"))
        styled.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        styled.add_row(*map(Text, row))
    return styled


def show_error(text: str) -> None:
    """A line on stderr that begins with `error`."""
    errors.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
