"""The compared jobs, and their results. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Kind(Enum):
    """A job that both sides run."""

    READ = "read"
    """A batch query: every column of every record."""
    WRITE = "write"
    """Rows that Spark generates."""
    STREAM = "stream"
    """A new streaming query that catches up with all there is."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many records, of how many bytes of key and value."""

    records: int
    record_bytes: int

    def __str__(self) -> str:
        return f"{_short(self.records)} of {self.record_bytes} B"


@dataclass(frozen=True, slots=True)
class Workload:
    """A job on that many records."""

    kind: Kind
    size: Size

    def __str__(self) -> str:
        return f"{self.kind.value} {self.size}"


FULL: Final = (Size(10_000_000, 100), Size(1_000_000, 1024))
QUICK: Final = (Size(500_000, 100), Size(50_000, 1024))


def workloads(sizes: Sequence[Size], kinds: Sequence[Kind]) -> list[Workload]:
    """All of them, those of one topic together."""
    return [Workload(kind, size) for size in sizes for kind in kinds]


@dataclass(frozen=True, slots=True)
class Run:
    """One side's job, once. Seconds, and bytes of memory at its peak."""

    workload: Workload
    side: str
    seconds: float
    cpu: float
    """CPU seconds of the JVM and all Python processes."""
    broker_cpu: float | None
    """CPU seconds of the broker, if it belongs to the comparison."""
    jvm_rss: int
    worker_rss: int
    """The largest Python worker."""

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.workload.size.records / self.seconds


@dataclass(frozen=True, slots=True)
class Result:
    """All rounds of a workload on one side. Rates and ratios are medians; memory is the largest."""

    workload: Workload
    side: str
    rate: float
    rates: tuple[float, ...]
    ratio: float | None
    """How much faster than the connector, round by round; None for itself."""
    ratios: tuple[float, ...]
    cpu: float
    cpu_ratio: float | None
    """How much more CPU the connector takes for the same."""
    broker_cpu: float | None
    jvm_rss: int
    worker_rss: int

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "job": self.workload.kind.value,
            "records": self.workload.size.records,
            "record_bytes": self.workload.size.record_bytes,
            "side": self.side,
            "records_per_second": round(self.rate),
            "records_per_second_of_rounds": [round(rate) for rate in self.rates],
            "ratio": _rounded(self.ratio),
            "ratio_of_rounds": [_rounded(ratio) for ratio in self.ratios],
            "cpu_seconds": _rounded(self.cpu),
            "cpu_ratio": _rounded(self.cpu_ratio),
            "broker_cpu_seconds": _rounded(self.broker_cpu),
            "jvm_peak_rss_bytes": self.jvm_rss,
            "worker_peak_rss_bytes": self.worker_rss,
        }


def summarise(runs: Sequence[Run], beside: str) -> list[Result]:
    """The results of all sides, in the order of the runs; ratios are relative to the side `beside`, if it ran."""
    found: dict[tuple[Workload, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.workload, run.side), []).append(run)
    return [
        _result(workload, side, rounds, found.get((workload, beside), []) if side != beside else [])
        for (workload, side), rounds in found.items()
    ]


def _result(workload: Workload, side: str, rounds: Sequence[Run], others: Sequence[Run]) -> Result:
    # Rounds of both sides follow each other at once, so that what else the machine does disturbs both alike.
    ratios = tuple(mine.rate / other.rate for mine, other in zip(rounds, others, strict=False))
    cpu = statistics.median(run.cpu for run in rounds)
    brokers = [run.broker_cpu for run in rounds if run.broker_cpu is not None]
    return Result(
        workload,
        side,
        rate=statistics.median(run.rate for run in rounds),
        rates=tuple(run.rate for run in rounds),
        ratio=statistics.median(ratios) if ratios else None,
        ratios=ratios,
        cpu=cpu,
        cpu_ratio=statistics.median(run.cpu for run in others) / max(cpu, 0.01) if others else None,
        broker_cpu=statistics.median(brokers) if brokers else None,
        jvm_rss=max(run.jvm_rss for run in rounds),
        worker_rss=max(run.worker_rss for run in rounds),
    )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)


def _short(number: int) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit and number % (unit // 10) == 0:
            return f"{number / unit:g} {name}"
    return str(number)
