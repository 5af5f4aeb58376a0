"""The goal of a figure: a number, or a multiple of another server's figure in the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benches.cells import Figures

KAFKA = "kafka"
KLAMM = "klamm"
CEILING = "ceiling"
COLUMNS = (KAFKA, KLAMM, CEILING)

Medians = Mapping[str, Mapping[str, Figures]]
"""By row, then by column of the table."""
Limit = Callable[[Medians, str, str], float | None]
"""The limit, computed from all medians, the row and the figure; None when what it is compared with was not measured."""


@dataclass(frozen=True)
class Goal:
    """The goal of klamm for one figure of a row."""

    figure: str
    is_least: bool
    limit: Limit
    text: str

    def judge(self, medians: Medians, row: str) -> Verdict:
        """The verdict. A figure that was not measured never counts as reached."""
        value = medians.get(row, {}).get(KLAMM, {}).get(self.figure)
        limit = self.limit(medians, row, self.figure)
        if value is None or limit is None:
            return Verdict(limit, None)
        return Verdict(limit, value >= limit if self.is_least else value <= limit)


@dataclass(frozen=True)
class Verdict:
    """The limit in this run, and whether it was reached; None if it was not measured."""

    limit: float | None
    is_reached: bool | None


def at_most(figure: str, limit: float | Limit, text: str = "") -> Goal:
    """At most that value. `text` describes a limit that is not a number."""
    return Goal(figure, False, _limit(limit), f"<= {text or _shown(limit)}")


def at_least(figure: str, limit: float | Limit, text: str = "") -> Goal:
    """At least that value."""
    return Goal(figure, True, _limit(limit), f">= {text or _shown(limit)}")


def _limit(limit: float | Limit) -> Limit:
    return limit if callable(limit) else lambda _medians, _row, _figure: limit


def _shown(limit: object) -> str:
    assert isinstance(limit, int | float), "a computed limit needs a description"
    return f"{limit:,}"


def times(factor: float, column: str, *, figure: str = "", row: str = "", more: float = 0) -> Limit:
    """A multiple of the same or another figure, in a column of the same or another row, plus `more`."""

    def limit(medians: Medians, own_row: str, own_figure: str) -> float | None:
        found = medians.get(row or own_row, {}).get(column, {}).get(figure or own_figure)
        return None if found is None else factor * found + more

    return limit


def larger_of(*limits: Limit) -> Limit:
    """The largest of the measured ones."""

    def limit(medians: Medians, row: str, figure: str) -> float | None:
        found = [value for one in limits if (value := one(medians, row, figure)) is not None]
        return max(found, default=None)

    return limit
