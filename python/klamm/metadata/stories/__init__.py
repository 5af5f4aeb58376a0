"""What became of one partition, and why."""
