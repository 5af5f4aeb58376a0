"""Consumer groups whose members come and go, and the invariants of KIP-848.

1. In one epoch a partition has one owner, of either protocol.
2. A member does not get a partition that another one still uses, unless that one was removed from the group.
3. No offset is accepted of a member whose partition another one has in a later epoch, or as its replacement.
4. A process loses its instance id to another one only when its session has ended, or it was too slow (KIP-345).
5. Once faults stop, each group becomes stable: its members are those that live, and they use every partition of their
   topics once. It is a classic group if all of them use the classic protocol.

`group_lives` has those of migrations between the protocols.

A coordinator that was replaced and does not know it yet answers from its old state, as in Apache Kafka: what a member
learns there counts for nothing. Where the offsets topic may have lost records, nothing is promised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.group import STABLE, ConsumerGroup
from klamm.coordinator.groups.streams.group import StreamsGroup
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.transactions import TRANSACTIONS_TOPIC
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.consumer_protocol import decode_assignment
from klamm.testing.simulator.brokers.classic_member import ClassicGroupMember
from klamm.testing.simulator.brokers.group_folding import check_group_state
from klamm.testing.simulator.brokers.group_lives import CLASSIC, GroupLives, GroupView, Watched, view_of
from klamm.testing.simulator.brokers.group_member import GroupMember
from klamm.testing.simulator.brokers.group_places import coordinator_of, newest_shard
from klamm.testing.simulator.brokers.group_settings import HEARTBEAT_MS, SESSION_MS
from klamm.testing.simulator.brokers.member_process import REBALANCE_MS, MemberProcess, Subscription
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.history import Key, PartitionHistory
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.transactional_producer import Work

AnyGroup = ClassicGroup | ConsumerGroup | StreamsGroup

CLIENT: Final = -3
MEMBERS_MAX: Final = 4
SILENCE_US_MAX: Final = 3_000 * SESSION_MS
LOOK_US: Final = 100_000
INSTANCES: Final = 3
RETURN_CHANCE: Final = 0.7
RETURN_US_MAX: Final = 2_000 * SESSION_MS
PATTERNS: Final = ("t", "t|__consumer.*", "__[ct].*", "nothing")
CALM_US: Final = 1_000 * (SESSION_MS + REBALANCE_MS)
"""No session and no rebalance timeout that began before is left."""


class MemberGroup:
    """One group, as its members see it."""

    id = CLIENT

    def __init__(self, scene: Scene, brokers: dict[int, Broker], group_id: str, promises: Callable[[], bool]) -> None:
        self._scene, self._brokers, self.group_id, self._promises = scene, brokers, group_id, promises
        self.members: list[MemberProcess] = []
        self.lives = GroupLives(group_id)
        self._classic_instances: dict[str, Subscription] = {}
        """The instance ids that members of the classic protocol had: they take them from live members.

        As in Apache Kafka, a process that returns with other topics begins no rebalance of a classic group.
        """
        self._count = self._offset = 0
        self._owners: dict[tuple[Key, tuple[int, int]], str] = {}
        """The member that uses a partition in an epoch."""
        self._begun: dict[Key, list[tuple[int, tuple[int, int], str]]] = {}
        """Times, epochs and members, of a partition."""

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """Members show by themselves whether they are alive."""
        return act

    # For members

    def coordinator(self) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""
        return coordinator_of(self._scene, self._brokers, self.group_id)

    def is_newest(self, coordinators: Coordinators) -> bool:
        """Whether these lead the group's partition by what is committed."""
        hosted = newest_shard(self._scene, self._brokers, self.group_id)
        runtime = coordinators.groups.runtime
        return hosted is not None and runtime is not None and runtime.shards.get(hosted.partition) is hosted

    def watched(self, work: Work) -> Work:
        """The request, with a look at the group before and after it is handled."""
        if not self._scene.faults.classic_share and not self.lives.count:
            return work

        async def watch(coordinators: Coordinators) -> Any:
            is_newest = self.is_newest(coordinators)
            compare = self.lives.on_handled if is_newest and self._promises() else lambda before, after: None
            return await Watched(work(coordinators), self._view, compare)

        return watch

    def _view(self) -> GroupView | None:
        hosted = newest_shard(self._scene, self._brokers, self.group_id)
        return None if hosted is None else view_of(hosted.shard, self.group_id)

    def knows(self, member_id: str) -> bool:
        """Whether the newest coordinator has this member, as far as can be seen."""
        view = self._view()
        return view is None or member_id in view.members

    @property
    def life(self) -> int:
        """How often the group has begun, with epochs of its own."""
        return self.lives.count

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic."""
        return self._scene.controller.image.topic_id(name)

    def partitions_of(self, name: str) -> list[int]:
        """The partitions of a topic."""
        image, topic_id = self._scene.controller.image, self.topic_id(name)
        return [] if topic_id is None else [partition.index for partition in image.partitions(topic_id)]

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic."""
        return self._scene.controller.image.topic_name(topic_id)

    def on_owned(self, member: MemberProcess) -> None:
        """The member uses other partitions, or uses them in another epoch. Raises InvariantViolatedError."""
        if member.is_misled or not member.owned:
            return
        for key in sorted(member.owned):
            owner = self._owners.setdefault((key, member.when), member.name)
            if owner != member.name and self._promises():
                raise InvariantViolatedError(
                    f"{member.name} and {owner} use {_text(key)} of {self.group_id} in epoch {member.epoch}"
                )
            begun = self._begun.setdefault(key, [])
            if not begun or begun[-1][1:] != (member.when, member.id):
                begun.append((self._scene.now_us, member.when, member.id))
        for other in self.members:
            shared = sorted(other.owned & member.owned) if other is not member else []
            if shared and self._is_current(member) and self._is_current(other) and self._promises():
                raise InvariantViolatedError(
                    f"{member.id} (epoch {member.epoch}) uses {_text(shared[0])} of {self.group_id}, "
                    f"and {other.id} (epoch {other.epoch}) does"
                )

    def _is_current(self, member: MemberProcess) -> bool:
        """Whether the coordinator has it as a member, in this epoch or in one whose response was lost."""
        found = self._found()
        if isinstance(found, ClassicGroup):
            # What a member of the generation before uses was known to the leader of this one. A static member may not
            # have joined this one.
            is_known = member.id in found.members and found.generation_id - member.epoch <= int(not member.instance_id)
        else:
            known: Any = None if found is None else found.members.get(member.id)
            is_known = known is not None and member.epoch in (known.member_epoch, known.previous_member_epoch)
        return is_known and not member.is_misled and member.life == self.life

    def _found(self) -> AnyGroup | None:
        hosted = newest_shard(self._scene, self._brokers, self.group_id)
        if hosted is None:
            return None
        group = hosted.shard.modern_groups.get(self.group_id)
        return group if isinstance(group, ConsumerGroup) else hosted.shard.groups.get(self.group_id)

    def on_committed(self, member_id: str, key: Key, when: tuple[int, int], sent_us: int) -> None:
        """The coordinator has accepted an offset. Raises InvariantViolatedError."""
        begun = self._begun.get(key, [])
        own_us = max((begun_us for begun_us, _, other in begun if other == member_id), default=sent_us)
        for begun_us, later, other in begun:
            is_later = later > when or (later == when and begun_us > own_us)  # a process that has replaced this one
            if begun_us < sent_us and is_later and other != member_id and self._promises():
                raise InvariantViolatedError(
                    f"{self.group_id} has an offset of {_text(key)} that {member_id} sent in epoch {when[1]}, "
                    f"and {other} uses it in epoch {later[1]}"
                )

    def on_refused(self, member: MemberProcess, code: ErrorCode) -> None:
        """Another process has the member's instance id. Raises InvariantViolatedError."""
        others = [other for other in self.members if other is not member and other.instance_id == member.instance_id]
        if code is ErrorCode.FENCED_INSTANCE_ID:
            is_taken = member.instance_id in self._classic_instances
            if self._scene.now_us - member.calm_since_us > CALM_US and not is_taken and self._promises():
                raise InvariantViolatedError(f"{member.id} of {self.group_id} is replaced while it is a member")
        elif not others:
            return  # that of an earlier process, whose session has not ended: this one tries again
        member.crash()
        if member in self.members:
            self.members.remove(member)

    # Life

    def work(self) -> None:
        """All members do what is due."""
        for member in [*self.members]:
            member.work()

    def befall(self, topics: tuple[str, ...]) -> None:
        """A member joins, leaves, crashes, pauses, or subscribes to other topics."""
        rng, faults = self._scene.rng, self._scene.faults
        count = rng.randint(1, len(topics))
        wanted = Subscription(tuple(sorted(rng.sample(topics, count))))
        if faults.pattern_share and rng.random() < faults.pattern_share:
            wanted = Subscription(wanted.names if rng.random() < 0.5 else (), rng.choice(PATTERNS))
        if not self.members or (len(self.members) < MEMBERS_MAX and rng.random() < 0.5):
            is_static = faults.instance_share and rng.random() < faults.instance_share
            self._join(wanted, f"{self.group_id}-i{rng.randrange(INSTANCES)}" if is_static else None)
            return
        member = rng.choice(self.members)
        match rng.choice(["leave", "crash", "silence", "silence", "names"]):
            case "leave":
                self._end(member, wanted, has_left=True)
            case "crash":
                self._end(member, wanted, has_left=False)
            case "silence":
                member.silence(rng.randrange(SILENCE_US_MAX), self._next_offset())
            case _:
                self._rename(member, wanted)

    def _join(self, wanted: Subscription, instance_id: str | None) -> None:
        self._count += 1
        rng, share, process = self._scene.rng, self._scene.faults.classic_share, f"{self.group_id}-{self._count}"
        if wanted.names and share and rng.random() < share:
            wanted = Subscription(wanted.names)
            is_cooperative = rng.random() < 0.5
            if instance_id is not None:
                wanted = self._classic_instances.setdefault(instance_id, wanted)
            self.members.append(
                ClassicGroupMember(self._scene, self, process, wanted, instance_id, is_cooperative=is_cooperative)
            )
        else:
            self.members.append(GroupMember(self._scene, self, process, wanted, instance_id))

    def _rename(self, member: MemberProcess, wanted: Subscription) -> None:
        """Classic members have no regular expressions that the coordinator knows."""
        if not isinstance(member, ClassicGroupMember):
            member.wanted = wanted
        elif wanted.names and member.instance_id is None:
            member.wanted = Subscription(wanted.names)

    def _end(self, member: MemberProcess, wanted: Subscription, *, has_left: bool) -> None:
        """A process ends. That of a static member may start again, with another member id."""
        rng, instance_id = self._scene.rng, member.instance_id
        says_it_returns = instance_id is not None and rng.random() < RETURN_CHANCE
        if has_left:
            member.leave(will_return=says_it_returns)
        else:
            member.crash()
        self.members.remove(member)
        if says_it_returns and rng.random() < RETURN_CHANCE:
            wanted = member.wanted if rng.random() < 0.5 else wanted
            self._scene.at(rng.randrange(RETURN_US_MAX), lambda: self._join(wanted, instance_id))

    def commit(self) -> None:
        """A member commits an offset."""
        if self.members:
            self._scene.rng.choice(self.members).commit(self._next_offset())

    def _next_offset(self) -> int:
        self._offset += 1
        return self._offset

    # The end

    def check_stable(self) -> str | None:
        """What is not yet as it has to be; None if nothing is."""
        group, image = self._found(), self._scene.controller.committed[1]
        if not self.members:
            return None
        if group is None or isinstance(group, StreamsGroup):
            return "there is no such group"
        is_classic = all(isinstance(member, ClassicGroupMember) for member in self.members)
        if isinstance(group, ClassicGroup) is not is_classic:
            return f"it is a {CLASSIC if isinstance(group, ClassicGroup) else group.kind} group"
        state = group.state.value if isinstance(group, ClassicGroup) else group.state
        if group.members.keys() != {member.id for member in self.members} or state != STABLE:
            return f"it is {state} with {sorted(group.members)}"
        used = [key for member in self.members for key in member.owned]
        topics = image.topic_names()
        named = {member.id: _topics_of(member.wanted, topics) for member in self.members}
        ids = {topic_id for name in set().union(*named.values()) if (topic_id := image.topic_id(name)) is not None}
        wanted = [(topic_id, one.index) for topic_id in ids for one in image.partitions(topic_id)]
        if sorted(used) != sorted(wanted):
            return f"{[*map(_text, sorted(used))]} are used"
        for member in self.members:
            owned, epoch = self._assigned(group, member.id)
            has_only_wanted = {key[0] for key in owned} <= {image.topic_id(name) for name in named[member.id]}
            if member.epoch != epoch or member.owned != owned or not has_only_wanted:
                return f"{member.id} uses {[*map(_text, sorted(member.owned))]} in epoch {member.epoch}"
        return None

    def _assigned(
        self, group: ClassicGroup | ConsumerGroup, member_id: str
    ) -> tuple[set[tuple[bytes | None, int]], int]:
        """What the coordinator has as a member's partitions, and the group's epoch."""
        if isinstance(group, ConsumerGroup):
            assigned = group.members[member_id].assigned
            return {(topic_id, at) for topic_id, epochs in assigned.items() for at in epochs}, group.group_epoch
        listed = decode_assignment(group.members[member_id].assignment).assigned_partitions
        return {(self.topic_id(one.topic), at) for one in listed for at in one.partitions}, group.generation_id


class Membership:
    """All consumer groups and streams groups with members."""

    def __init__(
        self,
        scene: Scene,
        topic: str,
        brokers: dict[int, Broker],
        histories: dict[Key, PartitionHistory],
        make: type[MemberGroup],
    ) -> None:
        """`make` makes streams groups."""
        self._scene, self._topic, self._brokers, self._histories = scene, topic, brokers, histories
        self._groups = [MemberGroup(scene, brokers, f"m{number}", self._promises) for number in range(2)]
        self._groups += [
            make(scene, brokers, f"streams{number}", self._promises) for number in range(scene.faults.streams_groups)
        ]
        self._look_again_us = 0

    def begin(self) -> None:
        """Let members come and go from now on."""
        faults = self._scene.faults
        topics = (self._topic, GROUPS_TOPIC, TRANSACTIONS_TOPIC)
        self._scene.every(lambda: faults.member_every_us, lambda: self._scene.rng.choice(self._groups).befall(topics))
        self._scene.every(lambda: faults.member_every_us // 2, lambda: self._scene.rng.choice(self._groups).commit())
        self._scene.every(lambda: 2 * faults.member_every_us, self._check_state)
        self._scene.every(lambda: 250 * HEARTBEAT_MS, self._work)

    def _work(self) -> None:
        for group in self._groups:
            group.work()

    def _promises(self) -> bool:
        topic_id = self._scene.controller.image.topic_id(GROUPS_TOPIC)
        return not any(history.may_lack_records for key, history in self._histories.items() if key[0] == topic_id)

    def _check_state(self) -> None:
        broker = self._scene.rng.choice(list(self._brokers.values()))
        if broker.is_serving and broker.is_up and self._promises():
            check_group_state(broker)

    def is_over(self) -> bool:
        """Whether every group is stable, once faults have stopped."""
        if self._scene.now_us < self._look_again_us:
            return False
        self._look_again_us = self._scene.now_us + LOOK_US
        return not self._promises() or not any(group.check_stable() for group in self._groups)

    def check_over(self) -> None:
        """After all faults. Raises InvariantViolatedError."""
        for group in self._groups:
            found = group.check_stable()
            if found is not None and self._promises():
                raise InvariantViolatedError(f"group {group.group_id} does not become stable: {found}")
        for broker in self._brokers.values():
            if self._promises():
                check_group_state(broker)


def _topics_of(wanted: Subscription, topics: list[str]) -> set[str]:
    """The topics that a member subscribes to."""
    return {*wanted.names, *(topic for topic in topics if re.fullmatch(wanted.pattern, topic))}


def _text(key: Key) -> str:
    return f"{key[0].hex()[-4:]}-{key[1]}"
