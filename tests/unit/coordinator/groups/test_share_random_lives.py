"""Random operations on a share group: the state is the fold of the log, and a failed append changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm.coordinator.groups.effects import CreateStates
from klamm.coordinator.groups.share.group import ShareGroup
from klamm.protocol.errors import ErrorCode
from klamm.protocol.topic_info import TopicInfo

from .consumer_room import INTERVAL_MS, SESSION_MS
from .share_room import GROUP, ShareRoom

NAMES = ("apples", "berries")
MEMBER_IDS = st.sampled_from(["a", "b", "c"])
SUBSCRIPTIONS = st.sampled_from([("apples",), NAMES, ("absent",), ("berries", "absent")])
SOFT = {"hash_checked_epoch", "states_written_ms"}


def topic(name: str, count: int, generation: int = 0) -> TopicInfo:
    return TopicInfo(name, f"{name}{generation}".encode().ljust(16, b"_"), count)


def states_of(room: ShareRoom) -> dict[str, dict[str, Any]]:
    """The complete folded state, by group."""
    groups = room.shard.modern_groups.items()
    return {
        group_id: {name: value for name, value in vars(group).items() if name not in SOFT}
        for group_id, group in groups
        if isinstance(group, ShareGroup)
    }


class LivesOfAShareGroup(RuleBasedStateMachine):
    """1. The state is the fold of the log. 2. A rollback restores the committed state. 3. A member has only partitions
    that have a state and that it subscribes to; no partition is in two of the three sets of record 15 at rest.
    """

    @initialize(sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
    def begin(self, sizes: tuple[int, int]) -> None:
        self.infos = {name: topic(name, size) for name, size in zip(NAMES, sizes, strict=True)}
        self.room = ShareRoom(*self.infos.values())
        self.count = 0

    @rule(member_id=MEMBER_IDS, names=SUBSCRIPTIONS)
    def join(self, member_id: str, names: tuple[str, ...]) -> None:
        self.room.beat_later(member_id, 0, subscribed_topic_names=names)

    @rule(member_id=MEMBER_IDS, names=st.none() | SUBSCRIPTIONS, behind=st.integers(0, 2))
    def beat(self, member_id: str, names: tuple[str, ...] | None, behind: int) -> None:
        group = self.room.shard.modern_groups.get(GROUP)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        epoch = 1 if member is None else max(member.member_epoch - behind, 1)
        self.room.beat_later(member_id, epoch, subscribed_topic_names=names)

    @rule(member_id=MEMBER_IDS)
    def leave(self, member_id: str) -> None:
        self.room.beat_later(member_id, -1)

    @rule(for_ms=st.sampled_from([INTERVAL_MS, SESSION_MS, 31_000]))
    def pass_time(self, for_ms: int) -> None:
        self.room.pass_time(for_ms)

    @precondition(lambda self: self.room.effects)
    @rule(is_done=st.booleans())
    def create_states(self, is_done: bool) -> None:
        self.room.create_states(is_done=is_done)

    @precondition(lambda self: not self.room.holds_appends)
    @rule(name=st.sampled_from(NAMES), offset=st.integers(0, 5))
    def alter(self, name: str, offset: int) -> None:
        self.room.alter(name, p0=offset, p9=offset)

    @precondition(lambda self: not self.room.holds_appends)
    @rule(names=SUBSCRIPTIONS)
    def delete_offsets(self, names: tuple[str, ...]) -> None:
        self.room.delete_offsets(*names)

    @precondition(lambda self: not self.room.holds_appends)
    @rule()
    def delete_group(self) -> None:
        self.room.delete_states()
        self.room.delete_group()

    @rule(name=st.sampled_from(NAMES))
    def recreate_topic(self, name: str) -> None:
        self.count += 1
        old = self.infos[name]
        self.room.delete_topic(old)
        self.room.take(self.room.shard.on_topics_deleted(self.room.now_ms, [(name, old.topic_id)]))
        self.infos[name] = topic(name, old.partition_count, self.count)
        self.room.create_topic(self.infos[name])

    @rule(name=st.sampled_from(NAMES))
    def add_partition(self, name: str) -> None:
        self.room.add_partitions(self.infos[name], 1)
        self.infos[name] = self.infos[name]._replace(partition_count=self.infos[name].partition_count + 1)

    @rule(hold=st.booleans())
    def hold_appends(self, hold: bool) -> None:
        self.room.holds_appends = hold
        if not hold:
            self.room.commit_all()

    @precondition(lambda self: self.room.appending is not None)
    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    def fail(self, error: ErrorCode) -> None:
        self.room.fail(error)

    @precondition(lambda self: self.room.appending is None)
    @rule()
    def restart(self) -> None:
        again = self.room.reloaded()
        again.holds_appends = self.room.holds_appends
        self.room = again

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        if self.room.appending is None:
            assert states_of(self.room.reloaded()) == states_of(self.room)

    @invariant()
    def members_have_what_they_may(self) -> None:
        group = self.room.shard.modern_groups.get(GROUP)
        if not isinstance(group, ShareGroup):
            return
        for member in group.members.values():
            for topic_id in member.assigned:
                name = self.room.image.topic_name(topic_id)
                assert name is None or name in member.subscribed_topic_names
        states = group.states
        if states is not None:
            assert not states.deleting.keys() & states.initializing.keys()

    @invariant()
    def only_states_are_asked_for(self) -> None:
        assert all(isinstance(effect, CreateStates) for effect in self.room.effects)


TestLives = LivesOfAShareGroup.TestCase
TestLives.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
