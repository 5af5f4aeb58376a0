"""`klamm quorum`."""
