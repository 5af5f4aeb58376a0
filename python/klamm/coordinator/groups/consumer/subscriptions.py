"""The subscription of a consumer group after a pending change of members, and its metadata hash."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klamm._engine.groups import group_hash
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import ConsumerMember
from klamm.coordinator.groups.topics import Topics


class Subscriptions:
    """The subscriptions of a group as counts, with changes of members applied to copies."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self.names = dict(group.names)
        self.patterns = dict(group.patterns)
        self.matched = dict(group.matched)
        self.member_count = len(group.members)

    def replace(self, old: ConsumerMember, new: ConsumerMember, *, is_added: bool) -> None:
        """`old` becomes `new`; `is_added` if the group gets one member more."""
        self._count(old, -1)
        self._count(new, 1)
        self.member_count += is_added
        self._drop_unused(old)

    def remove(self, members: Iterable[ConsumerMember]) -> list[str]:
        """Remove members. Returns the resolved regular expressions that no member has any more."""
        unused: list[str] = []
        for member in members:
            self._count(member, -1)
            self.member_count -= 1
            unused += self._drop_unused(member)
        return unused

    def resolve(self, pattern: str, topics: Collection[str]) -> None:
        """A regular expression matches these topics now."""
        known = self._group.resolved.get(pattern)
        for topic in () if known is None else known.topics:
            _add(self.matched, topic, -1)
        for topic in topics:
            _add(self.matched, topic, 1)

    def _count(self, member: ConsumerMember, by: int) -> None:
        # A new member has no count yet: it names nothing.
        for name in member.subscribed_topic_names:
            _add(self.names, name, by)
        if member.pattern is not None:
            _add(self.patterns, member.pattern, by)

    def _drop_unused(self, member: ConsumerMember) -> list[str]:
        pattern = member.pattern
        if pattern is None or pattern in self.patterns:
            return []
        for topic in self._group.resolved[pattern].topics if pattern in self._group.resolved else ():
            _add(self.matched, topic, -1)
        return [pattern]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics, without looking into the matches of several patterns."""
        count = self.member_count
        if not self.patterns:
            return all(named == count for named in self.names.values())
        if len(self.patterns) > 1 or count not in self.patterns.values():
            return False
        return not self.names and all(matches == 1 for matches in self.matched.values())

    def metadata_hash(self, topics: Topics) -> int:
        """The hash of the subscribed topics that exist, 0 without any."""
        names = sorted(self.names.keys() | self.matched.keys())
        hashes = [(name, found) for name in names if (found := topics.hash_of(name)) is not None]
        return group_hash(hashes) if hashes else 0


def _add(counts: dict[str, int], key: str, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
