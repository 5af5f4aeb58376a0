"""Shared by the pipeline commands: options, and a progress bar."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from klamm.cli.framework.options import Option
from klamm.cli.terminal.output import is_terminal
from klamm.client import ClientError

Master = Annotated[
    str | None,
    Option(
        metavar="URL",
        envvar="KLAMM_SPARK_MASTER",
        help="Spark's master; the cores of this machine by default.",
        panel="Where and how",
    ),
]
ClientKeys = Annotated[
    list[str] | None,
    Option(
        "--client",
        metavar="KEY=VALUE",
        help="A client configuration key of Apache Kafka. May be repeated.",
        panel="Where and how",
    ),
]


def archives() -> Any:
    """The archive functions, which need extra packages."""
    try:
        from klamm.pipelines import archive
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in ("pyspark", "pyarrow"):
            raise
        raise ClientError(f"this needs {package}: pip install 'klamm[spark]'") from None
    return archive


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """Parse KEY=VALUE options. Raises ClientError."""
    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ClientError(f"{option} {text} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


@contextlib.contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, on a terminal only."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from klamm.cli.terminal.styled import errors

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
