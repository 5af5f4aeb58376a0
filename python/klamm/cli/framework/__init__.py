"""How a command line becomes a call: options, parsing, typer's view, and errors in a line."""
