"""A deterministic simulator of the quorum: the real cores on a simulated clock, network, disk and randomness."""
