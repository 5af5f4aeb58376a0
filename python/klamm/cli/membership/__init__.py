"""Membership of a consumer group, for `klamm consume --group`: a core without I/O, and the assignors."""
