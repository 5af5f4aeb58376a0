"""How groups of a simulated cluster are configured: with less than the defaults, for as many events in less time."""

from typing import Final

PARTITIONS: Final = 2
"""Of `__consumer_offsets`."""
HEARTBEAT_MS: Final = 200
SESSION_MS: Final = 1_200
