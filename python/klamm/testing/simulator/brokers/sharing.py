"""Share groups whose members come and go; what they are promised is in `share_deliveries`.

Where the log of a coordinator or the records themselves may be lost, nothing is promised. Once faults stop, each group
reads everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm._engine.records import record_batches
from klamm.node.groups import GROUPS_TOPIC
from klamm.node.share_states import SHARE_STATES_TOPIC
from klamm.protocol.resource_types import ResourceType
from klamm.testing.simulator.brokers.group_folding import check_group_state
from klamm.testing.simulator.brokers.group_places import coordinator_of
from klamm.testing.simulator.brokers.group_settings import SESSION_MS
from klamm.testing.simulator.brokers.share_deliveries import ShareDeliveries
from klamm.testing.simulator.brokers.share_folding import check_share_state
from klamm.testing.simulator.brokers.share_member import ShareMember
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import Image
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key, PartitionHistory
    from klamm.testing.simulator.brokers.operator import Operator
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.transactions import Transactions

CLIENT: Final = -4
MEMBERS_MAX: Final = 3
WORK_US: Final = 50_000
SILENCE_US_MAX: Final = 2_000 * SESSION_MS
LOOK_US: Final = 100_000
ISOLATION: Final = {"s0": "read_uncommitted", "s1": "read_committed"}
"""By group."""


class SharingGroup:
    """One share group, as its members see it."""

    id = CLIENT

    def __init__(self, scene: Scene, brokers: dict[int, Broker], group_id: str, deliveries: ShareDeliveries) -> None:
        self._scene, self._brokers, self.group_id, self.deliveries = scene, brokers, group_id, deliveries
        self.members: list[ShareMember] = []
        self.is_settling = False
        self._count = self._connection = 0

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """Members tell by themselves whether they live."""
        return act

    def coordinator(self) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""
        return coordinator_of(self._scene, self._brokers, self.group_id)

    def leader_of(self, key: Key) -> Broker | None:
        """The leader of a partition, as some broker knows it."""
        partition = self._scene.rng.choice(list(self._brokers.values())).image.partition(*key)
        return None if partition is None or partition.leader < 0 else self._brokers[partition.leader]

    def new_connection(self) -> int:
        """The id of a connection, which no other group uses."""
        self._connection += 1
        return (self._connection << 8) + int(self.group_id[1:])

    def join(self, topic: str) -> None:
        """A member joins."""
        self._count += 1
        self.members.append(ShareMember(self._scene, self, f"{self.group_id}-{self._count}", (topic,)))

    def work(self) -> None:
        """All members do what is due."""
        for member in self.members:
            member.work()

    def befall(self, topic: str) -> None:
        """A member joins, leaves, crashes, or pauses."""
        rng = self._scene.rng
        if not self.members or (len(self.members) < MEMBERS_MAX and rng.random() < 0.5):
            self.join(topic)
            return
        member = rng.choice(self.members)
        match rng.choice(["leave", "crash", "silence", "silence"]):
            case "leave":
                member.leave()
                self.members.remove(member)
            case "crash":
                member.crash()
                self.members.remove(member)
            case _:
                member.silence(rng.randrange(SILENCE_US_MAX))


class Sharing:
    """All share groups."""

    def __init__(
        self,
        scene: Scene,
        topic: str,
        brokers: dict[int, Broker],
        histories: dict[Key, PartitionHistory],
        *,
        delivery_limit: int,
    ) -> None:
        self._scene, self._topic, self._brokers, self._histories = scene, topic, brokers, histories
        self.deliveries = ShareDeliveries(histories, delivery_limit, self._promises, scene.check)
        self.deliveries.on_received = self._on_received
        self._groups = [SharingGroup(scene, brokers, group_id, self.deliveries) for group_id in ISOLATION]
        self.transactions: Transactions | None = None
        self._look_again_us = 0

    def configure(self, operator: Operator, image: Image) -> bool:
        """Set the configs of the groups; whether they have them."""
        if all(image.configs(ResourceType.GROUP, group_id) for group_id in ISOLATION):
            return True
        operator.configure_groups(
            {
                group_id: {"share.isolation.level": isolation, "share.auto.offset.reset": "earliest"}
                for group_id, isolation in ISOLATION.items()
            }
        )
        return False

    def begin(self) -> None:
        """Let members come and go from now on."""
        faults, rng = self._scene.faults, self._scene.rng
        self._scene.every(lambda: faults.share_every_us, lambda: rng.choice(self._groups).befall(self._topic))
        self._scene.every(lambda: 2 * faults.share_every_us, self._check_state)
        self._scene.every(lambda: WORK_US, self._work)

    def _work(self) -> None:
        for group in self._groups:
            group.work()

    def _promises(self, key: Key) -> bool:
        """Whether nothing may be lost of a partition, nor of the logs of coordinators."""
        image = self._scene.controller.image
        needed = {image.topic_id(SHARE_STATES_TOPIC), image.topic_id(GROUPS_TOPIC)}
        logs = (history for at, history in self._histories.items() if at == key or at[0] in needed)
        return not any(history.may_lack_records for history in logs)

    def _on_received(self, group_id: str, key: Key, data: bytes, ranges: list[tuple[int, int]]) -> None:
        """A member gets records: none of an aborted transaction if its group reads committed ones."""
        if self.transactions is None or ISOLATION[group_id] != "read_committed":
            return
        for batch in record_batches(data):
            if any(first <= batch.last_offset and batch.base_offset <= last for first, last in ranges):
                self.transactions.on_shared(key, batch)

    def _check_state(self) -> None:
        broker = self._scene.rng.choice(list(self._brokers.values()))
        if broker.is_serving and broker.is_up:
            self._check(broker)

    def _check(self, broker: Broker) -> None:
        image = self._scene.controller.image
        for topic, check in ((SHARE_STATES_TOPIC, check_share_state), (GROUPS_TOPIC, check_group_state)):
            topic_id = image.topic_id(topic)
            if not any(history.may_lack_records for at, history in self._histories.items() if at[0] == topic_id):
                check(broker)

    # The end

    def settle(self) -> None:
        """All faults have ended: each group has a member, and its members accept everything."""
        for group in self._groups:
            group.is_settling = True
            if not group.members:
                group.join(self._topic)

    def is_over(self) -> bool:
        """Whether each group has read everything."""
        if self._scene.now_us < self._look_again_us:
            return False
        self._look_again_us = self._scene.now_us + LOOK_US
        return not any(self._unread(group) for group in self._groups)

    def check_over(self) -> None:
        """After all faults. Raises InvariantViolatedError."""
        for group in self._groups:
            unread = self._unread(group)
            if unread is not None:
                raise InvariantViolatedError(f"group {group.group_id} does not read everything: {unread}")
            for key in self._keys():
                self._check_complete(group.group_id, key)
        for broker in self._brokers.values():
            self._check(broker)

    def _keys(self) -> list[Key]:
        image = self._scene.controller.committed[1]
        topic_id = image.topic_id(self._topic)
        keys = [] if topic_id is None else [(topic_id, one.index) for one in image.partitions(topic_id)]
        return [key for key in keys if self._promises(key)]

    def _unread(self, group: SharingGroup) -> str | None:
        """What a group has not finished."""
        for key in self._keys():
            partition = self._scene.controller.committed[1].partition(*key)
            assert partition is not None, "it exists"
            gauges = self._scene.gauges(partition.leader, key) if partition.leader >= 0 else None
            if gauges is None:
                if partition.leader >= 0 and not self._histories[key].committed:
                    continue
                return f"partition {key[1]} has no leader"
            if gauges.log_start_offset == gauges.high_watermark:
                continue
            found = self._brokers[partition.leader].engine.share_gauges(group.group_id, key)
            if found is None or found[2] < gauges.high_watermark:
                return f"partition {key[1]} is at {found} of {gauges.high_watermark}"
        return None

    def _check_complete(self, group_id: str, key: Key) -> None:
        """Every record was delivered, and is finished for a reason."""
        partition = self._scene.controller.committed[1].partition(*key)
        gauges = None if partition is None else self._scene.gauges(partition.leader, key)
        if gauges is None:
            return
        known, history = self.deliveries.of(group_id, key), self._histories[key]
        begin = max(gauges.log_start_offset, history.deleted_end)
        for committed in history.committed:
            [batch] = record_batches(committed.content)
            is_hidden = batch.is_control or (batch.is_transactional and ISOLATION[group_id] == "read_committed")
            for offset in () if is_hidden else range(committed.base_offset, committed.end_offset):
                is_finished = offset in known.ended or known.is_exhausted(offset)
                if offset >= begin and not (offset in known.delivered and is_finished):
                    raise InvariantViolatedError(
                        f"{known.name}: {offset} is finished, and was delivered {known.delivered.get(offset, 0)} times"
                    )
