"""How groups of a simulated cluster are configured: with less than the defaults, for as many events in less time."""

from typing import Final

PARTITIONS: Final = 2
"""Of `__consumer_offsets`."""
HEARTBEAT_MS: Final = 200
SESSION_MS: Final = 1_200
LOCK_MS: Final = 1_000
"""Of a record that a member of a share group has acquired."""
