"""`klamm metadata`."""
