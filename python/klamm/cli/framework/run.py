"""Runs a command: parses its line, calls it, and prints its errors as one line."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

from klamm._engine import __version__
from klamm.cli.commands import commands
from klamm.cli.framework.command_line import read
from klamm.cli.terminal.exits import Abort, BadParameter, Exit
from klamm.cli.terminal.output import say_aborted, say_error
from klamm.client import ClientError

_COMPLETION: Final = "_KLAMM_COMPLETE"
"""Set by a shell that requests completions of a line."""


def run_command(words: Sequence[str]) -> int:
    """Run a command line without the program's name. Returns the exit code; errors are one line, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal cannot encode are shown as escapes.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(words)
        sys.stdout.flush()
    except ClientError as error:
        say_error(str(error))
        return 1
    except OSError as error:
        _let_go_of_stdout()
        if error.errno != errno.EPIPE:  # otherwise the reader of the output is gone
            say_error(": ".join(filter(None, (error.filename, error.strerror or str(error)))))
        return 1
    return code


def _run(words: Sequence[str]) -> int:
    if list(words) == ["--version"]:
        print(f"klamm {__version__}")
        return 0
    call = None if _COMPLETION in os.environ else read(commands, words)
    if call is None:
        from klamm.cli.framework.app import parse

        parsed = parse(words)
        if isinstance(parsed, int):
            return parsed
        call = parsed
    try:
        call.function(**call.values)
    except Exit as end:
        return end.code
    except BadParameter as error:
        from klamm.cli.framework.app import refuse

        return refuse(words, str(error))
    except (Abort, EOFError):
        say_aborted()
        return 1
    return 0


def _let_go_of_stdout() -> None:
    """Discard unwritten output, so that it is not written again when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
