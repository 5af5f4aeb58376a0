"""Replication without one of its guards, for each of them (goals R3).

Each function takes a guard away with `patch`, pytest's monkeypatch; its docstring is the rule that the guard keeps, and
where it comes from. `guards` says under which faults it is noticed.
"""
