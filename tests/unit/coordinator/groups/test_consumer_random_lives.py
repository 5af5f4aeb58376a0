"""Random operations on a consumer group: joins, leaves, reports, metadata, failed appends and reloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.coordinator.memory_log import Entry

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import MemberState
from klamm.coordinator.runtime.log import LoadedRecord
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import INTERVAL_MS, SESSION_MS, Consumer, ConsumerRoom

NAMES = ("apples", "berries", "cherries")
MEMBER_IDS = tuple(f"m{at}" for at in range(5))
SUBSCRIPTIONS = (("apples",), ("apples", "berries"), NAMES, (), ("absent",))
PATTERNS = ("", "apples|berries", ".*rries", "absent.*")
member_ids = st.sampled_from(MEMBER_IDS)


def entry_parts(entry: Entry) -> tuple[bytes, bytes | None]:
    """Key and value."""
    return (entry.key, entry.value) if isinstance(entry, LoadedRecord) else entry


def topic(name: str, count: int, generation: int = 0) -> TopicInfo:
    return TopicInfo(name, f"{name}{generation}".encode().ljust(16, b"_"), count)


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    """The complete folded state."""
    kept = vars(group) | {"state": group.state}
    return {name: value for name, value in kept.items() if name != "hash_checked_epoch"}


def states_of(room: ConsumerRoom) -> dict[str, dict[str, Any]]:
    groups = room.shard.modern_groups.items()
    return {group_id: state_of(group) for group_id, group in groups if isinstance(group, ConsumerGroup)}


class LivesOfAConsumerGroup(RuleBasedStateMachine):
    """1. In an epoch a partition has one owner, and at any time one. 2. The state is the fold of the log. 3. A rollback
    brings back the committed state. 4. When all members report what they own, all reach the target.
    """

    @initialize(sizes=st.tuples(*(st.integers(1, 6) for _ in NAMES)))
    def begin(self, sizes: tuple[int, ...]) -> None:
        self.infos = {name: topic(name, size) for name, size in zip(NAMES, sizes, strict=True)}
        self.room = self.begin_room(sizes)
        self.clients: dict[str, Consumer] = {}
        self.owners: dict[tuple[bytes, int, int], str] = {}
        self.count = 0

    def begin_room(self, sizes: tuple[int, ...]) -> ConsumerRoom:
        return ConsumerRoom(*(topic(name, size) for name, size in zip(NAMES, sizes, strict=True)))

    def forget(self) -> None:
        """The node has restarted, so pending requests are forgotten."""

    # Members

    @rule(
        member_id=member_ids,
        names=st.sampled_from(SUBSCRIPTIONS),
        pattern=st.sampled_from(PATTERNS),
        static=st.booleans(),
    )
    def join(self, member_id: str, names: tuple[str, ...], pattern: str, *, static: bool) -> None:
        fields: dict[str, Any] = {"subscribed_topic_names": names, "subscribed_topic_regex": pattern}
        if static:
            fields["instance_id"] = f"i{member_id}"
        client = self.clients.setdefault(member_id, self.room.consumer(member_id, **fields))
        client.room = self.room
        if client.join().error_code is not ErrorCode.NONE:
            del self.clients[member_id]

    @rule(member_id=member_ids, reports=st.booleans(), names=st.none() | st.sampled_from(SUBSCRIPTIONS))
    def beat(self, member_id: str, names: tuple[str, ...] | None, *, reports: bool) -> None:
        client = self.clients.get(member_id)
        if client is not None:
            answer = client.beat(reports=reports, **({} if names is None else {"subscribed_topic_names": names}))
            if answer.error_code is not ErrorCode.NONE:
                self.clients.pop(member_id)

    @rule(member_id=member_ids, epoch=st.sampled_from((-1, -2)))
    def leave(self, member_id: str, epoch: int) -> None:
        client = self.clients.pop(member_id, None)
        if client is not None and (epoch == -1 or "instance_id" in client.fields):
            client.leave(epoch)

    @rule(for_ms=st.sampled_from((100, INTERVAL_MS, 11_000, SESSION_MS)))
    def pass_time(self, for_ms: int) -> None:
        self.room.pass_time(for_ms)

    # Metadata

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3))
    def add_partitions(self, name: str, count: int) -> None:
        info = self.infos.get(name)
        if info is not None:
            self.room.add_partitions(info, count)
            self.infos[name] = info._replace(partition_count=info.partition_count + count)

    @rule(name=st.sampled_from(NAMES))
    def delete_or_create(self, name: str) -> None:
        info = self.infos.pop(name, None)
        if info is not None:
            self.room.delete_topic(info)
            return
        self.count += 1
        self.infos[name] = topic(name, 2, self.count)
        self.room.create_topic(self.infos[name])

    @rule()
    def resolve(self) -> None:
        self.room.resolve()

    # Faults

    @rule(member_id=member_ids, names=st.sampled_from(SUBSCRIPTIONS), others=st.integers(0, 3))
    def fail_an_append(self, member_id: str, names: tuple[str, ...], others: int) -> None:
        before = states_of(self.room)
        self.room.holds_appends = True
        self.room.heartbeat_of_later(
            member_id, 0, subscribed_topic_names=names, rebalance_timeout_ms=1_000, topic_partitions=()
        )
        for client in list(self.clients.values())[:others]:
            self.room.heartbeat_of_later(client.member_id, client.epoch, topic_partitions=())
            self.room.heartbeat_of_later(client.member_id, -1)
        if self.room.appending is not None:
            self.room.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.room.holds_appends = False
        self.room.commit_all()
        assert states_of(self.room) == before

    @rule()
    def reload(self) -> None:
        self.room = self.room.reloaded()
        self.forget()
        for client in self.clients.values():
            client.room = self.room

    # Invariants

    @invariant()
    def one_owner(self) -> None:
        for group in self._groups():
            held: dict[tuple[bytes, int], str] = {}
            for member in group.members.values():
                for owned in (member.assigned, member.pending_revocation):
                    for topic_id, partitions in owned.items():
                        for partition in partitions:
                            assert held.setdefault((topic_id, partition), member.member_id) == member.member_id
                            assert group.owner_epoch(topic_id, partition) == member.member_epoch
                if member.state is not MemberState.UNREVOKED_PARTITIONS:
                    assert not member.pending_revocation
            assert len(group.owners) == len(held)

    @invariant()
    def the_log_has_the_state(self) -> None:
        assert states_of(self.room.reloaded()) == states_of(self.room)

    @invariant()
    def a_compacted_log_has_the_state(self) -> None:
        """Compaction keeps the last record of each key, and removes old tombstones."""
        latest: dict[bytes, Entry] = {}
        for entry in self.room.log:
            key, _ = entry_parts(entry)
            latest.pop(key, None)
            latest[key] = entry
        values = [entry for entry in latest.values() if entry_parts(entry)[1] is not None]
        for log in (list(latest.values()), values):
            again = ConsumerRoom(config=self.room.config, log=log, image=self.room.image, now_ms=self.room.now_ms)
            assert states_of(again) == states_of(self.room)

    def _groups(self) -> Iterator[ConsumerGroup]:
        return (group for group in self.room.shard.modern_groups.values() if isinstance(group, ConsumerGroup))

    @precondition(lambda self: self.clients)
    @rule()
    def settle(self) -> None:
        """All clients of the group report for a while; those that left without a request are removed."""
        room = self.room
        for _ in range(12):
            room.pass_time(SESSION_MS // 4)
            room.resolve()
            for member_id, client in list(self.clients.items()):
                if client.beat().error_code is not ErrorCode.NONE:
                    del self.clients[member_id]
        if not self.clients:
            return
        group = room.consumers
        assert group.state == "Stable"
        assert set(group.members) == set(self.clients)
        wanted = {name for name in group.subscribed_topics if room.image.topic_id(name) is not None}
        owned = [
            (name, partition)
            for client in self.clients.values()
            for name, partitions in client.owned.items()
            for partition in partitions
        ]
        expected = {(name, at) for name in wanted for at in range(self.infos[name].partition_count)}
        assert len(owned) == len(set(owned))
        assert set(owned) == expected


TestLivesOfAConsumerGroup = LivesOfAConsumerGroup.TestCase
TestLivesOfAConsumerGroup.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
