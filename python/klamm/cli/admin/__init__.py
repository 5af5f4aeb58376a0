"""`klamm topics`, `klamm configs`, `klamm features`, `klamm groups` and `klamm transactions`."""
