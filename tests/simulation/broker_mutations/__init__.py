"""Replication without one of its guards, for each of them (goals R3).

`control`: functions that take a guard of the controller away with `patch`, pytest's monkeypatch; each docstring is the
rule that the guard keeps, and where it comes from. The guards of brokers have names that the engine knows
(`SimulatedBroker.guards`). `guards` says how each is noticed.
"""
