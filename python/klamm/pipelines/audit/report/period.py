"""The period of a report, divided into intervals for the plots."""

from __future__ import annotations

from typing import Final, NamedTuple

STRETCHES: Final = 80


class Period(NamedTuple):
    """The period of a report, in intervals of equal length."""

    start_ms: int
    end_ms: int

    @property
    def width_ms(self) -> int:
        """The length of one interval."""
        return max(1, -(-(self.end_ms - self.start_ms + 1) // STRETCHES))

    def stretch(self, time_ms: int) -> int:
        """The index of the interval that contains a time."""
        return min(max((time_ms - self.start_ms) // self.width_ms, 0), STRETCHES - 1)

    def part(self, time_ms: int | None) -> float:
        """A time as a fraction of the period, 0 to 1; None is its end."""
        if time_ms is None:
            return 1.0
        return min(max((time_ms - self.start_ms) / (self.width_ms * STRETCHES), 0.0), 1.0)
