"""The broker's life cycle, metadata publishing and request handlers, a file per API family."""
