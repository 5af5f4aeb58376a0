"""Counters of a coordinator runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from klamm.coordinator.runtime.hosted_shard import LoadState


def partition_gauges(mbean: str, states: Iterable[LoadState]) -> dict[str, int]:
    """The numbers of partitions by state, by name (Kafka's `CoordinatorRuntimeMetricsImpl`)."""
    found = Counter(states)
    return {f"kafka.server:type={mbean},name=num-partitions,state={state.value}": found[state] for state in LoadState}


@dataclass(slots=True)
class RuntimeCounts:
    """Counters over all partitions. They only grow."""

    loads: int = 0
    load_time_ms: int = 0
    load_failures: int = 0
    faults: int = 0
    appends: int = 0
    appended_records: int = 0
    append_failures: int = 0

    def named(self, prefix: str) -> dict[str, int]:
        """All counters by name."""
        return {
            f"{prefix}Loads": self.loads,
            f"{prefix}LoadTimeMs": self.load_time_ms,
            f"{prefix}LoadFailures": self.load_failures,
            f"{prefix}Faults": self.faults,
            f"{prefix}Appends": self.appends,
            f"{prefix}AppendedRecords": self.appended_records,
            f"{prefix}AppendFailures": self.append_failures,
        }
