"""`klamm topics`, `klamm configs`, `klamm features` and `klamm groups`."""
