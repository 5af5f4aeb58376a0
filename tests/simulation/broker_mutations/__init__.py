"""Replication with one guard removed, for each guard.

`control`, `coordinators`, `groups`, `migrations`, `shares`, `streams` and `cleaning`: functions that remove a guard
with `patch`, pytest's monkeypatch; each docstring is the rule that the guard enforces, with its source. The guards of
brokers have names in the engine (`SimulatedBroker.guards`). `guards` lists how each removal is detected.
"""
