"""The `klamm` command. `start` goes its own way, so that a node serves before anything else is imported."""

from __future__ import annotations

import sys
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of what Ctrl-C ended, as shells have it."""


def main() -> None:
    """The entry point: runs what the command line says, and exits."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line without the program's name. The exit code."""
    if arguments[:1] == ["start"] and not {"-h", "--help"} & set(arguments):
        from klamm.cli.node import process

        process.begin()
        try:
            from klamm.cli.node.start import start

            return start(arguments[1:])
        finally:
            process.settle()
    try:
        from klamm.cli.framework.run import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
