"""What a person sees: output, tables, log lines, and Ctrl-C."""
