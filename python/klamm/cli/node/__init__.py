"""`klamm start` and `klamm storage`."""
