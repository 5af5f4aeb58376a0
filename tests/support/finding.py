"""What is wrong with a record of a history."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Finding(NamedTuple):
    """An anomaly and its place."""

    anomaly: enum.Enum
    partition: int
    offset: int
    value: str

    def __str__(self) -> str:
        return f"{self.value} (partition {self.partition}, offset {self.offset}): {self.anomaly.value}"
