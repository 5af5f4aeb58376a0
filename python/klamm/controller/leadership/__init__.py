"""Leaders of partitions: periodic elections, elections on request, and those after broker changes."""
