"""Formats durations."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def duration(duration_ms: int) -> str:
    """In the largest unit of which it is at least one."""
    sign, left = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    for unit, size in _UNITS:
        if left >= size:
            return f"{sign}{left / size:.1f} {unit}"
    return f"{sign}{left} ms"
