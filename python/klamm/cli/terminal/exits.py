"""Exceptions that end a command."""

from __future__ import annotations


class Exit(Exception):
    """The command has printed everything, and ends with this exit code."""

    def __init__(self, code: int) -> None:
        """`code` is the process's exit code."""
        super().__init__(code)
        self.code = code


class Abort(Exception):
    """The user answered no to a question, or did not answer."""


class BadParameter(Exception):
    """The command line is wrong: shown with the command's usage, exit code 2."""
