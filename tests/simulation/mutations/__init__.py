"""The protocol with one guard removed, for each guard.

Each function removes a guard with `patch`, pytest's monkeypatch; its docstring is the rule that the guard enforces,
with its source. `guards` lists how each removal is detected.
"""
