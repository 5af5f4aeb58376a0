"""What a group shard asks of its driver, besides responses."""

from __future__ import annotations

from klamm.protocol.value import Value


class ResolvePatterns(Value):
    """Match the regular expressions of a group against all topics, and report to `on_patterns_resolved`.

    The driver does this on another thread: there may be many topics.
    """

    group_id: str
    patterns: tuple[str, ...]


GroupEffect = ResolvePatterns
