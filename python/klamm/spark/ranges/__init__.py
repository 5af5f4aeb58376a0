"""Which ranges of offsets are read: start and end, filters, and cuts by bytes."""
