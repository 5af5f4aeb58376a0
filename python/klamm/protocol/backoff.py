"""Times that double from failure to failure, as Apache Kafka's clients have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

JITTER: Final = 0.2


class ExponentialBackoff(NamedTuple):
    """Twice as long after each failure, 20 % more or less by chance, and never above the maximum."""

    initial_ms: int
    max_ms: int

    def time_ms(self, failures: int, rng: Callable[[], float]) -> float:
        """The backoff after that many failures; `rng` returns numbers in [0, 1)."""
        if self.max_ms <= self.initial_ms:
            return self.max_ms
        # Counting stops here: 2 ** 64 ms is beyond every maximum.
        doubled = min(self.initial_ms << min(failures, 64), self.max_ms)
        return min(doubled * (1 - JITTER + 2 * JITTER * rng()), self.max_ms)
