"""Brokers and controllers of the cluster: registration, heartbeats, sessions, producer ids."""
