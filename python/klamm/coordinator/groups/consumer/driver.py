"""Regular expressions are compiled and matched on other threads: a large one would block the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from klamm._engine.groups import TopicPattern
from klamm.coordinator.groups.compiled_patterns import compiled
from klamm.coordinator.groups.consumer.records import ResolvedPattern
from klamm.coordinator.groups.effects import ResolvePatterns
from klamm.coordinator.groups.shard import GroupShard, Replies
from klamm.coordinator.groups.topics import Topics
from klamm.coordinator.runtime.driver import CoordinatorRuntime
from klamm.coordinator.runtime.hosted_shard import HostedShard

log: Final = logging.getLogger("klamm.coordinator")

SHORT_PATTERN: Final = 64
"""Any pattern of at most that many characters compiles within a few milliseconds."""


class PatternThreads:
    """Starts that work, and continues in the loop."""

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], topics: Topics) -> None:
        self._runtime, self._topics = runtime, topics
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Resolve nothing more."""
        for task in list(self._tasks):
            task.cancel()

    def compile_first(self, pattern: str | None, then: Callable[[], None]) -> None:
        """Call `then` when `pattern` is compiled, or cannot be; at once if it is short."""
        if pattern is None or len(pattern) <= SHORT_PATTERN:
            then()
            return
        compiling = asyncio.get_running_loop().run_in_executor(None, compiled, pattern)
        compiling.add_done_callback(lambda _: then())

    def resolve(self, hosted: HostedShard[GroupShard], resolution: ResolvePatterns) -> None:
        """Match regular expressions, and notify the shard if it is still active."""
        task = asyncio.get_running_loop().create_task(self._resolve(hosted, resolution))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, hosted: HostedShard[GroupShard], resolution: ResolvePatterns) -> None:
        version, found = self._topics.version, None
        try:
            found = await asyncio.to_thread(_matches, self._topics, resolution.patterns)
        except Exception:  # a later heartbeat starts it again
            log.exception("group %s: its regular expressions could not be resolved", resolution.group_id)

        def resolved(shard: GroupShard, now_ms: int) -> Replies:
            patterns = (
                None
                if found is None
                else {pattern: ResolvedPattern(topics, version, now_ms) for pattern, topics in found.items()}
            )
            return shard.on_patterns_resolved(now_ms, resolution.group_id, patterns)

        self._runtime.feed(hosted, resolved)


def _matches(topics: Topics, patterns: Sequence[str]) -> dict[str, frozenset[str]]:
    return {pattern: frozenset(topics.matching(TopicPattern(pattern))) for pattern in patterns}
