"""A classic group and its members as data; other modules decide about changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from klamm.coordinator.groups.records import GroupMetadata, MemberMetadata
from klamm.coordinator.groups.states import NEXT_STATES, GroupState
from klamm.coordinator.groups.subscription import CONSUMER_PROTOCOL_TYPE, SubscriptionError, subscribed_topics
from klamm.coordinator.runtime.effects import Ticket
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.group_messages import JoinGroupMember, JoinProtocol

NO_TIMESTAMP: Final = -1


@dataclass(slots=True)
class Member:
    """A member of a classic group. Its tickets are JoinGroup and SyncGroup requests that wait for other members."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: Ticket = None
    sync_ticket: Ticket = None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a waiting request keeps the session alive. Not for a new member, which does not know its id yet."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for a protocol that it supports."""
        return next(protocol.metadata for protocol in self.protocols if protocol.name == protocol_name)

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that is in `candidates`."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)


@dataclass(slots=True)
class ClassicGroup:
    """Members, generation and state of a group.

    1. `members` is in the order of joining; the leader, if there is one, is a member.
    2. `static_members` maps the instance ids of `members` to their member ids, and contains no others.
    3. `pending_joins` are assigned member ids that have not joined yet; `pending_syncs` are members.
    4. `waiting_joins` counts the members with a `join_ticket`.
    5. `supporters` counts the members by protocol name; no member lists a protocol twice.
    6. Every member of a stable group supports `protocol_name`.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: set[str] = field(default_factory=set)
    pending_syncs: set[str] = field(default_factory=set)
    waiting_joins: int = 0
    supporters: dict[str, int] = field(default_factory=dict)
    new_member_added: bool = False
    initial_delay_ms: int | None = None
    """The delay in progress while an empty group waits for its first members."""
    initial_remaining_ms: int = 0
    topics: frozenset[str] | None = None
    """The topics that its consumers subscribe to; None if unknown."""

    def become(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        assert state in NEXT_STATES[self.state], f"group {self.group_id}: {self.state.value} -> {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether the join phase may start."""
        return GroupState.PREPARING_REBALANCE in NEXT_STATES[self.state]

    @property
    def is_empty(self) -> bool:
        """Whether the group is in state Empty; it may have pending joins."""
        return self.state is GroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether the group exists only because it has offsets. It has no record of its own."""
        return self.protocol_type is None and self.is_empty and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member has a waiting join and no assigned id is still to join."""
        return len(self.members) == self.waiting_joins and not self.pending_joins

    def add(self, member: Member, ticket: Ticket) -> None:
        """Add a member with `ticket` as its waiting join; the first member becomes leader."""
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.await_join(member, ticket)
        self.pending_joins.discard(member.member_id)

    def await_join(self, member: Member, ticket: Ticket) -> Ticket:
        """Replace the member's waiting join by `ticket` (None: no join), and return the previous one."""
        before, member.join_ticket = member.join_ticket, ticket
        self.waiting_joins += (ticket is not None) - (before is not None)
        return before

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. If it was the leader, another member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.waiting_joins -= member.join_ticket is not None
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def rename(self, old: Member, new_member_id: str) -> Member:
        """Give a static member a new id. Its tickets were answered before."""
        del self.members[old.member_id]
        new = Member(
            new_member_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = new
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        assert old.group_instance_id is not None, f"{old.member_id} is not a static member"
        self.static_members[old.group_instance_id] = new_member_id
        self.pending_syncs.discard(old.member_id)
        return new

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member with this id.

        Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id.
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is not None and owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def set_protocols(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace the protocols that a member supports."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        counts = self.supporters
        for protocol in member.protocols:
            counts[protocol.name] = counts.get(protocol.name, 0) + by
            if counts[protocol.name] == 0:
                del counts[protocol.name]

    def supports(self, protocol_type: str, protocols: Iterable[JoinProtocol]) -> bool:
        """Whether a member with these protocols may join."""
        names = [protocol.name for protocol in protocols]
        if self.is_empty:
            return bool(protocol_type and names)
        member_count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supporters.get(name, 0) == member_count for name in names
        )

    def candidates(self) -> set[str]:
        """The protocols that every member supports."""
        member_count = len(self.members)
        return {name for name, supporters in self.supporters.items() if supporters == member_count}

    def select_protocol(self) -> str:
        """The candidate with the most votes; with equal votes, the candidate that received a vote first."""
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def elect_joined_leader(self) -> bool:
        """Whether the leader has a waiting join; if not, a member that has one becomes leader first."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is not None:
            return True
        joined = (member.member_id for member in self.members.values() if member.join_ticket is not None)
        leader = next(joined, None)
        self.leader_id = leader or self.leader_id
        return leader is not None

    def begin_generation(self, now_ms: int) -> None:
        """End the join phase with the members that are left."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self.read_topics()
        self.become(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_syncs.clear()

    def read_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if they are not consumers or cannot be parsed."""
        if not self.uses_consumer_protocol:
            return None
        name = self.protocol_name
        if name is None:
            return None if self.members else frozenset()
        try:
            topics = (subscribed_topics(member.metadata(name)) for member in self.members.values())
            return frozenset().union(*topics)
        except SubscriptionError:
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may need the topic's offsets. If subscriptions cannot be parsed, every topic counts."""
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    def leader_view(self) -> tuple[JoinGroupMember, ...]:
        """The members with their subscriptions, which only the leader receives."""
        name = self.protocol_name or ""
        return tuple(
            JoinGroupMember(member.member_id, member.group_instance_id, member.metadata(name))
            for member in self.members.values()
        )

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadata:
        """The group as a record. A member without an assignment gets an empty one."""
        name = self.protocol_name or ""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(name),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupMetadata(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            members,
        )

    @classmethod
    def from_record(cls, group_id: str, record: GroupMetadata) -> ClassicGroup:
        """The group of a record: Stable, or Empty without members."""
        group = cls(
            group_id,
            GroupState.STABLE if record.members else GroupState.EMPTY,
            generation_id=record.generation,
            protocol_type=record.protocol_type or None,
            protocol_name=record.protocol,
            leader_id=record.leader,
            state_timestamp_ms=record.current_state_timestamp_ms,
        )
        for member in record.members:
            group.add(_member_of(member, record.protocol or ""), None)
        if group.leader_id not in group.members:
            group.leader_id = next(iter(group.members), None)
        group.topics = group.read_topics()
        return group


def _member_of(record: MemberMetadata, protocol: str) -> Member:
    # Version 0 of the record has no rebalance timeout (-1).
    has_timeout = record.rebalance_timeout_ms != -1
    return Member(
        record.member_id,
        record.group_instance_id,
        record.client_id,
        record.client_host,
        record.rebalance_timeout_ms if has_timeout else record.session_timeout_ms,
        record.session_timeout_ms,
        (JoinProtocol(protocol, record.subscription),),
        record.assignment,
    )


EMPTY_GROUP_RECORD_GENERATION: Final = 0


def empty_group_record(group: ClassicGroup) -> GroupMetadata:
    """The record of a group at its creation."""
    return GroupMetadata("", EMPTY_GROUP_RECORD_GENERATION, None, None, group.state_timestamp_ms, ())
