"""Topics and their partitions: created, extended, deleted, placed."""
