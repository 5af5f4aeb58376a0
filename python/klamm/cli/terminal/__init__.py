"""The terminal: output, tables, log lines, and Ctrl-C."""
