"""Simulated brokers: the engine's replication and the real controller under faults, decided by one seed."""
