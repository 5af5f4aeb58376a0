"""The time that a report is about, in so many stretches that they fit a plot."""

from __future__ import annotations

from typing import Final, NamedTuple

STRETCHES: Final = 80


class Period(NamedTuple):
    """The time that a report is about, in equal stretches."""

    start_ms: int
    end_ms: int

    @property
    def width_ms(self) -> int:
        """Of one stretch."""
        return max(1, -(-(self.end_ms - self.start_ms + 1) // STRETCHES))

    def stretch(self, time_ms: int) -> int:
        """Which stretch a time is in."""
        return min(max((time_ms - self.start_ms) // self.width_ms, 0), STRETCHES - 1)

    def part(self, time_ms: int | None) -> float:
        """A time as a part of the period, 0 to 1; None is its end."""
        if time_ms is None:
            return 1.0
        return min(max((time_ms - self.start_ms) / (self.width_ms * STRETCHES), 0.0), 1.0)
