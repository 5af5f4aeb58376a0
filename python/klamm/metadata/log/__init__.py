"""Reading a metadata log: where it is, its records as values, and moments in it."""
