"""Random operations on a group with members of both protocols: upgrades, downgrades, faults, reloads."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from klamm.coordinator.groups.config import GroupConfig
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from klamm.protocol.messages.group_messages import (
    HeartbeatRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    SyncAssignment,
    SyncGroupRequest,
)

from .consumer_room import GROUP, ConsumerRoom, Owned
from .test_consumer_random_lives import NAMES, SUBSCRIPTIONS, LivesOfAConsumerGroup, topic

CLASSIC_NAMES = ("c0", "c1", "c2")
classic_names = st.sampled_from(CLASSIC_NAMES)
LONG_MS = 600_000


class OldClient:
    """A consumer of the classic protocol: its id, its generation, and a pending join or sync."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.joining: int | None = None
        self.joined: JoinGroupResponse | None = None


class LivesOfAMixedGroup(LivesOfAConsumerGroup):
    """The invariants of consumer groups hold, and every request gets its response eventually."""

    def begin_room(self, sizes: tuple[int, ...]) -> ConsumerRoom:
        self.old: dict[str, OldClient] = {}
        config = GroupConfig(group_initial_rebalance_delay_ms=0)
        return ConsumerRoom(*(topic(name, size) for name, size in zip(NAMES, sizes, strict=True)), config=config)

    def forget(self) -> None:
        """A reload loses pending requests."""
        for client in self.old.values():
            client.joining = None

    @rule(name=classic_names, names=st.sampled_from(SUBSCRIPTIONS), static=st.booleans(), owns=st.booleans())
    def join_classic(self, name: str, names: tuple[str, ...], *, static: bool, owns: bool) -> None:
        client = self.old.setdefault(name, OldClient(f"i{name}" if static else None))
        self._learn(client)
        member = self._member(client)
        owned: Owned = {}
        if owns and member is not None:
            found = ((self.room.image.topic_name(topic_id), parts) for topic_id, parts in member.assigned.items())
            owned = {known: tuple(sorted(parts)) for known, parts in found if known is not None}
        partitions = tuple(TopicPartitions(known, parts) for known, parts in owned.items())
        metadata = encode_subscription(Subscription(names, owned_partitions=partitions))
        client.joining = self.room.join_later(
            client.member_id,
            group_id=GROUP,
            protocols=(JoinProtocol("range", metadata),),
            group_instance_id=client.instance_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=20_000,
        )
        self._learn(client)

    def _learn(self, client: OldClient) -> None:
        """Receive the response to a join, if there is one."""
        if client.joining is None or client.joining not in self.room.answers:
            return
        answer: JoinGroupResponse = self.room.answers[client.joining]
        client.joining = None
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id, client.generation, client.joined = answer.member_id, answer.generation_id, answer
        elif answer.error_code is not ErrorCode.REBALANCE_IN_PROGRESS:
            client.member_id, client.generation = "", -1

    def _member(self, client: OldClient) -> object:
        for group in self._groups():
            return group.members.get(client.member_id)
        return None

    @rule(name=classic_names, topic_name=st.sampled_from(NAMES))
    def sync_classic(self, name: str, topic_name: str) -> None:
        client = self.old.get(name)
        if client is None:
            return
        self._learn(client)
        plan: tuple[SyncAssignment, ...] = ()
        info = self.infos.get(topic_name)
        if client.joined is not None and info is not None:
            # The leader assigns one topic, with a partition each.
            members = client.joined.members[: info.partition_count]
            plan = tuple(
                SyncAssignment(
                    one.member_id, encode_assignment(Assignment((TopicPartitions(topic_name, (partition,)),)))
                )
                for partition, one in enumerate(members)
            )
        request = SyncGroupRequest(
            GROUP, client.generation, client.member_id, plan, client.instance_id, "consumer", "range"
        )
        ticket = self.room.ticket()
        self.room.take(self.room.shard.on_sync(self.room.now_ms, ticket, request))

    @rule(name=classic_names)
    def beat_classic(self, name: str) -> None:
        client = self.old.get(name)
        if client is not None:
            self._learn(client)
            ticket = self.room.ticket()
            request = HeartbeatRequest(GROUP, client.generation, client.member_id, client.instance_id)
            self.room.take(self.room.shard.on_heartbeat(self.room.now_ms, ticket, request))
            assert ticket in self.room.answers

    @rule(name=classic_names)
    def leave_classic(self, name: str) -> None:
        client = self.old.pop(name, None)
        if client is not None:
            self._learn(client)
            ticket = self.room.ticket()
            request = LeaveGroupRequest(GROUP, (LeavingMember(client.member_id, client.instance_id),))
            self.room.take(self.room.shard.on_leave(self.room.now_ms, ticket, request))
            assert ticket in self.room.answers

    @precondition(lambda self: True)
    @rule()
    def settle(self) -> None:
        """Without requests from its members the group becomes empty, and no request is pending."""
        self.room.pass_time(LONG_MS)
        for group in self._groups():
            assert group.is_empty
        for group in self.room.shard.groups.values():
            assert not group.members
        for client in self.old.values():
            assert client.joining is None or client.joining in self.room.answers
        self.clients.clear()
        self.old.clear()


TestLivesOfAMixedGroup = LivesOfAMixedGroup.TestCase
TestLivesOfAMixedGroup.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
