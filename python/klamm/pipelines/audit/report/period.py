"""The time that a report is about, in so many stretches that they fit a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column

STRETCHES: Final = 80


class Period(NamedTuple):
    """The time that a report is about, in equal stretches."""

    start_ms: int
    end_ms: int

    @property
    def width_ms(self) -> int:
        """Of one stretch."""
        return max(1, -(-(self.end_ms - self.start_ms + 1) // STRETCHES))

    def stretch(self, name: str) -> Column:
        """Which stretch a time is in."""
        from pyspark.sql import functions as f

        number = f.floor((f.unix_millis(name) - self.start_ms) / self.width_ms)
        return f.least(f.greatest(number, f.lit(0)), f.lit(STRETCHES - 1)).cast("int")

    def part(self, time_ms: int | None) -> float:
        """A time as a part of the period, 0 to 1; None is its end."""
        if time_ms is None:
            return 1.0
        return min(max((time_ms - self.start_ms) / (self.width_ms * STRETCHES), 0.0), 1.0)
