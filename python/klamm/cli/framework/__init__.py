"""Turns a command line into a call: options, parsing, typer's view, and one-line errors."""
