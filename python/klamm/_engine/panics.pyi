"""Panics of the engine, which Python receives as exceptions."""

class EnginePanicError(Exception):
    """A panic in the engine, which is a bug. The text is its message; stderr has the location."""

def panic_with(message: str) -> None:
    """Panic, as a bug in the engine does: for tests of what a fault leaves. Raises EnginePanicError."""
