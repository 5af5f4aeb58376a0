"""The run: each row's cells on the servers in turn, in rounds; failures are reported, and the run continues."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tests.interop import apache_kafka

from benches.cells import Figures
from benches.goals import COLUMNS, KAFKA
from benches.rows import Row
from benches.servers import Bench

ENOUGH: float = 0.7
"""After this share of the time no row gets a second round."""


LEFT_OUT = "left out"


def is_left_out(failure: str) -> bool:
    """Whether a cell has no figures because the time was over rather than because it failed."""
    return failure.startswith(LEFT_OUT)


@dataclass
class Measured:
    """One row: the figures per round in each column, and the reasons for missing ones."""

    row: Row
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def medians(self) -> dict[str, Figures]:
        """The median of each figure, for each column that has figures."""
        return {column: _median(samples) for column, samples in self.samples.items() if samples}


def column_of(kind: str) -> str:
    """The column of a server's kind: klamm and the ceiling have two kinds each, never both in one row."""
    return next(column for column in COLUMNS if kind.startswith(column))


@dataclass
class Clock:
    """The time limit of the run. Cells that have not started by then are skipped and reported."""

    minutes: float
    began: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """No further cell starts."""
        return time.monotonic() > self.began + self.minutes * 60

    @property
    def is_short(self) -> bool:
        """No row gets another round, so that all rows get one."""
        return time.monotonic() > self.began + self.minutes * 60 * ENOUGH


def measure(
    rows: Sequence[Row], *, quick: bool, rounds: int, kafka: bool, clock: Clock, console: Console
) -> list[Measured]:
    """Measure all rows."""
    missing = apache_kafka.why_not() if kafka else "--no-kafka"
    if missing is not None:
        console.print(f"Apache Kafka is left out: {missing}")
    found = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bench(quick=quick) as bench, Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(rows))
        for row in rows:
            progress.update(task, description=row.name)
            reason = row.why_not()
            if reason is not None:
                console.print(f"{row.name} is left out: {reason}", highlight=False, markup=False, soft_wrap=True)
                progress.advance(task)
                continue
            kinds = [kind for kind in row.kinds if missing is None or kind != KAFKA]
            if row.is_alone:
                bench.drop_all()
            measured = _measure_row(bench, row, kinds, min(rounds, row.rounds_max) * row.cells_a_round, clock)
            _tell(console, measured)
            found.append(measured)
            progress.advance(task)
    return found


def _tell(console: Console, measured: Measured) -> None:
    name = measured.row.name
    for column, figures in measured.medians().items():
        values = ", ".join(f"{figure} {value:,.3g}" for figure, value in figures.items())
        console.print(f"{name}, {column}: {values}", highlight=False, markup=False, soft_wrap=True)
    for column, reason in measured.failures.items():
        console.print(f"{name}, {column}: FAILED: {reason}", highlight=False, markup=False, soft_wrap=True)


def _measure_row(bench: Bench, row: Row, kinds: Sequence[str], rounds: int, clock: Clock) -> Measured:
    measured = Measured(row, {column_of(kind): [] for kind in kinds})
    began = time.monotonic()
    for number in range(rounds):
        if number > 0 and clock.is_short:
            break
        # Alternate the order: the first server finds another state of the machine than the last, and this should not
        # always be klamm.
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            column = column_of(kind)
            if column in measured.failures:
                continue
            if clock.is_over:
                measured.failures[column] = f"{LEFT_OUT}: the {clock.minutes:g} minutes are over"
                continue
            try:
                measured.samples[column].append(row.cell(bench, kind))
            except Exception as error:
                # Any error: the other rows can still be measured, and the exit code reports this one.
                measured.failures[column] = f"{type(error).__name__}: {error}"
                bench.drop(kind)
    measured.seconds = time.monotonic() - began
    return measured


def _median(samples: Sequence[Figures]) -> Figures:
    return {figure: statistics.median(sample[figure] for sample in samples) for figure in samples[0]}
