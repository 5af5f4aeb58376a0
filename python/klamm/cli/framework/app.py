"""The commands for typer: help, errors and completion, and command lines that `command_line` does not read."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from klamm._engine import __version__
from klamm.cli.commands import commands
from klamm.cli.framework.command_group import Command, Group
from klamm.cli.framework.command_line import Call
from klamm.cli.framework.options import Argument, Option


def parse(words: Sequence[str]) -> Call | int:
    """The call for the words; or the exit code, after printing help or an error."""
    calls: list[Call] = []
    code = _run(words, calls.append)
    return calls[0] if calls else code


def refuse(words: Sequence[str], reason: str) -> int:
    """Print why the command refuses these words, with its usage. Returns the exit code."""

    def print_error(_: Call) -> None:
        raise typer.BadParameter(reason)

    return _run(words, print_error)


def _run(words: Sequence[str], on_call: Callable[[Call], None]) -> int:
    app = typer.Typer(
        name="klamm",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=commands.help)(_main)
    if words and words[0] in commands:
        _add(app, commands, words[:1], on_call)
    else:
        _list(app, commands)
    try:
        app(list(words), prog_name="klamm")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    return 0


def _list(app: typer.Typer, group: Group) -> None:
    """Declare commands by their summaries, for a help or an error that none of them is needed for."""
    for name, member in group.elsewhere.items():
        if member.is_group:
            app.add_typer(typer.Typer(help=member.summary), name=name)
        else:
            app.command(name, help=member.summary)(_do_nothing)


def _do_nothing() -> None: ...


def _add(app: typer.Typer, group: Group, names: Sequence[str] | Group, on_call: Callable[[Call], None]) -> None:
    for name in names:
        member = group.find(name)
        if isinstance(member, Group):
            inner = typer.Typer(no_args_is_help=True, help=member.help)
            _add(inner, member, member, on_call)
            app.add_typer(inner, name=name)
        elif member is not None:
            app.command(name)(_declared(member, on_call))


def _declared(command: Command, on_call: Callable[[Call], None]) -> Callable[..., None]:
    """A function with the command's parameters as typer declares them, which only records the call."""

    def note(**values: Any) -> None:
        on_call(Call(command, values))

    hints = get_type_hints(command, include_extras=True)
    annotations = {name: _translated(hint) for name, hint in hints.items()}
    declared: Any = note
    declared.__doc__, declared.__name__, declared.__annotations__ = command.__doc__, command.__name__, annotations
    signature = inspect.signature(command)
    parameters = [one.replace(annotation=annotations[name]) for name, one in signature.parameters.items()]
    declared.__signature__ = signature.replace(parameters=parameters, return_annotation=None)
    return note


def _translated(hint: Any) -> Any:
    for declared in getattr(hint, "__metadata__", ()):
        match declared:
            case Option():
                return Annotated[hint.__origin__, typer.Option(*declared.names, **declared.keywords())]
            case Argument():
                return Annotated[hint.__origin__, typer.Argument(**declared.keywords())]
    return hint


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"klamm {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Declares the options of the program itself."""
