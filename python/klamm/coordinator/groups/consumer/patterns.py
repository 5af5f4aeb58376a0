"""When the regular expressions of a group are matched against the topics, and what follows.

All regular expressions of a group are resolved together, so that new topics cause one rebalance. What runs, and with
which version topics were created last, is soft state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.consumer.records import GroupEpochRecord, PatternRecord, ResolvedPattern
from klamm.coordinator.groups.consumer.subscriptions import Subscriptions
from klamm.coordinator.groups.context import ShardContext, Written, log
from klamm.coordinator.groups.effects import ResolvePatterns

RESOLVE_INTERVAL_MS: Final = 10_000
"""A group is resolved again at the earliest after this time."""
_NO_TOPICS: Final = ResolvedPattern(frozenset(), 0, 0)


class Patterns:
    """Starts the resolution of regular expressions, and writes its results."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._running: set[str] = set()
        self._not_before_ms: dict[str, int] = {}
        """By group whose resolution could not be written: when to start the next."""
        self._created_version = -1
        """The version of the metadata in which topics were created last."""

    def on_loaded(self) -> None:
        """The metadata that is known now counts as having new topics."""
        self._created_version = self._context.topics.version

    def on_topics_created(self) -> None:
        """Topics were created in the newest metadata."""
        self._created_version = self._context.topics.version

    def due(
        self, now_ms: int, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
    ) -> ResolvePatterns | None:
        """The resolution to start, if it is time. `group` does not have the update from `before` to `after` yet."""
        is_new = after.pattern is not None and after.pattern != before.pattern and after.pattern not in group.patterns
        if not (is_new or group.patterns) or group.group_id in self._running:
            return None
        last = group.last_resolved
        if now_ms <= last.timestamp_ms + RESOLVE_INTERVAL_MS or now_ms < self._not_before_ms.get(
            group.group_id, now_ms
        ):
            return None
        patterns = dict(group.patterns)
        for pattern, by in ((before.pattern, -1), (after.pattern, 1)):
            if pattern is not None:
                patterns[pattern] = patterns.get(pattern, 0) + by
        subscribed = tuple(pattern for pattern, count in patterns.items() if count > 0)
        refresh_ms = self._context.config.group_consumer_regex_refresh_interval_ms
        is_due = (
            is_new
            or len(subscribed) != len(group.resolved)
            or last.version < self._created_version
            or now_ms > last.timestamp_ms + refresh_ms
        )
        return ResolvePatterns(group.group_id, subscribed) if is_due and subscribed else None

    def start(self, resolution: ResolvePatterns) -> None:
        """Start a resolution that is due."""
        self._running.add(resolution.group_id)
        self._context.pipeline.add(resolution)

    def on_not_written(self, now_ms: int, group_id: str) -> None:
        """The resolved topics are too large for a record: not every heartbeat resolves them again."""
        waiting = {other: at_ms for other, at_ms in self._not_before_ms.items() if at_ms > now_ms}
        self._not_before_ms = waiting | {group_id: now_ms + RESOLVE_INTERVAL_MS}

    def on_resolved(self, group_id: str, found: Mapping[str, ResolvedPattern] | None) -> list[Written]:
        """The records of a resolution; None if it failed. It is started again by a later heartbeat."""
        self._running.discard(group_id)
        group = self._context.modern.find(group_id, ConsumerGroup)
        if group is None or found is None:
            return []
        records: list[Written] = []
        subscriptions, bump = Subscriptions(group), False
        for pattern, resolved in found.items():
            if pattern not in group.patterns:
                continue
            if resolved.topics != group.resolved.get(pattern, _NO_TOPICS).topics:
                bump = True
                subscriptions.resolve(pattern, resolved.topics)
            # Also an equal result is written, for its time.
            records.append(PatternRecord(group_id, pattern, resolved))
        metadata_hash = subscriptions.metadata_hash(self._context.topics)
        if bump or metadata_hash != group.metadata_hash:
            epoch = group.group_epoch + 1
            records.append(GroupEpochRecord(group_id, (epoch, metadata_hash)))
            self._context.counts.consumer_rebalances += 1
            group.hash_checked_epoch = epoch
            log.info("group %s: epoch %d (regular expressions were resolved)", group_id, epoch)
        return records
