"""The commands of `klamm`, put together."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from klamm import _engine
from klamm.admin.connection import ClientError
from klamm.cli import (
    archive,
    audit,
    bench_commands,
    config_commands,
    consume,
    feature_commands,
    group_commands,
    metadata_commands,
    mirror,
    produce,
    quorum_commands,
    restore,
    storage_commands,
    topic_commands,
)
from klamm.cli.output import errors

app = typer.Typer(
    name="klamm",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run_app(arguments: list[str]) -> int:
    """Run a command line without the program's name. The exit code; errors are one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What the terminal's character set does not have is shown as an escape.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except ClientError as error:
        return _fail(str(error))
    except OSError as error:
        _let_go_of_stdout()
        return _fail(": ".join(filter(None, (error.filename, error.strerror or str(error)))))
    return code


def _run(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="klamm")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


def _fail(text: str) -> int:
    errors.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)
    return 1


def _let_go_of_stdout() -> None:
    """What could not be written is not tried again at the process's end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"klamm {_engine.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A Kafka-compatible log in a Python package: run a node, and work with any Kafka cluster.

    \b
    [bold]Examples[/bold]
      klamm start
      klamm topics create greetings --partitions 3
      klamm produce greetings hello world
      klamm consume greetings
    """


@app.command()
def start(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[SERVER.PROPERTIES]", help="Apache Kafka's own keys and rules."),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", "-o", metavar="KEY=VALUE", help="Set a key. May be repeated.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder, ./klamm-data without a file.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port of a node without a file, 9092.")] = None,
) -> None:
    """Run a node until Ctrl-C or SIGTERM.

    Without a file: one node for this machine alone, which formats its folder
    by itself. Variables named KAFKA_* are read as in Apache Kafka's image.

    \b
    [bold]Examples[/bold]
      klamm start
      klamm start --port 19092 --data /tmp/klamm
      klamm start server.properties --override log.retention.hours=24
    """
    from klamm.cli.start import StartOptions, start_with

    sys.exit(start_with(StartOptions(file, override or [], data, port)))


app.add_typer(topic_commands.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("audit")(audit.audit)
app.command("mirror")(mirror.mirror)
app.add_typer(group_commands.app, name="groups")
app.add_typer(config_commands.app, name="configs")
app.add_typer(feature_commands.app, name="features")
app.add_typer(metadata_commands.app, name="metadata")
app.add_typer(quorum_commands.app, name="quorum")
app.add_typer(storage_commands.app, name="storage")
app.add_typer(bench_commands.app, name="bench")
app.command("archive")(archive.archive)
app.command("restore")(restore.restore)
