"""Times for record timestamps.

A node deletes records older than a week 30 s after its start, and every five minutes from then on.
"""

from __future__ import annotations

import time
from typing import Final

HOUR_AGO_MS: Final = (time.time_ns() // 1_000_000_000 - 3_600) * 1_000
"""In ms, but whole seconds."""
