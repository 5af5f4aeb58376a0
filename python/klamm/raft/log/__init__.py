"""The metadata log as raft needs it: the ports, control records, and when to snapshot and clean."""
