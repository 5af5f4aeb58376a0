"""The recipes' own I/O: clocks, tasks and threads, over a replica of the tree."""
