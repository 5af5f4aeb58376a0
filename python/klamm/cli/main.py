"""The `klamm` command. `start` has its own path, so that a node serves before other modules are imported."""

from __future__ import annotations

import sys
from typing import Final

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as in shells."""


def main() -> None:
    """The entry point: run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line without the program's name. Returns the exit code."""
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
