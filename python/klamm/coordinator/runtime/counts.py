"""What a coordinator runtime has done, counted where it is done."""

from __future__ import annotations


class RuntimeCounts:
    """Numbers that only grow, of all partitions together."""

    __slots__ = ("append_failures", "appended_records", "appends", "faults", "load_failures", "load_time_ms", "loads")

    def __init__(self) -> None:
        self.loads = 0
        self.load_time_ms = 0
        self.load_failures = 0
        self.faults = 0
        self.appends = 0
        self.appended_records = 0
        self.append_failures = 0

    def named(self, prefix: str) -> dict[str, int]:
        """All of them, by name."""
        return {
            f"{prefix}Loads": self.loads,
            f"{prefix}LoadTimeMs": self.load_time_ms,
            f"{prefix}LoadFailures": self.load_failures,
            f"{prefix}Faults": self.faults,
            f"{prefix}Appends": self.appends,
            f"{prefix}AppendedRecords": self.appended_records,
            f"{prefix}AppendFailures": self.append_failures,
        }
