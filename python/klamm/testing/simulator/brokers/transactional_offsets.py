"""The offsets of groups that transactions commit: visible with the records of their transaction, or not at all.

Invariants, sources KIP-98 and KIP-447:

1. A group receives no offset of a transaction whose producer did not ask for a commit, or which is aborted elsewhere.
2. After all faults a group has the offset of its last committed transaction, and none is pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import FetchGroup, FetchTopic
from klamm.testing.simulator.brokers.group_places import coordinator_of, newest_shard
from klamm.testing.simulator.brokers.network import Reply, Request
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klamm.protocol.messages.group_messages import FetchedGroup
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.coordinators import Coordinators
    from klamm.testing.simulator.brokers.network import Node
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.brokers.verdicts import Transaction

PARTITION: Final = 0
"""Each transactional id has a group, which commits the offsets of one partition."""
TIMEOUT_US: Final = 1_000_000


def group_of(transactional_id: str) -> str:
    """The group of a transactional id."""
    return f"g{transactional_id}"


class TransactionalOffsets:
    """Each transaction commits an offset of its own, which grows with the transactions of a group."""

    def __init__(
        self,
        scene: Scene,
        topic: str,
        brokers: dict[int, Broker],
        groups: Sequence[str],
        promises: Callable[[], bool],
    ) -> None:
        """`promises`: whether no partition of a transaction can have lost anything."""
        self._scene, self._topic, self._brokers, self._groups = scene, topic, brokers, groups
        self._promises = promises
        self._committed: dict[str, dict[int, Transaction]] = {group: {} for group in groups}
        self._acked: dict[str, set[int]] = {group: set() for group in groups}

    def begin(self, group_id: str, offset: int, transaction: Transaction) -> None:
        """A producer is about to commit that offset."""
        self._committed[group_id][offset] = transaction

    def on_acked(self, group_id: str, offset: int) -> None:
        """The group coordinator has it."""
        self._acked[group_id].add(offset)

    def coordinator_of(self, group_id: str) -> Broker | None:
        """The coordinator, as some broker knows it (FindCoordinator)."""
        return coordinator_of(self._scene, self._brokers, group_id)

    # Consumers

    def fetch(self, client: Node) -> None:
        """A consumer asks for the offset of a group (OffsetFetch)."""
        group_id, is_stable = self._scene.rng.choice(self._groups), self._scene.rng.random() < 0.5
        broker = self.coordinator_of(group_id)
        if broker is None:
            return

        async def work(coordinators: Coordinators) -> int | None:
            return _offset_in(await coordinators.fetch_offsets(self._request(group_id), require_stable=is_stable))

        def handle(reply: Reply) -> None:
            if broker.coordinators is not None:
                broker.coordinators.do(work, reply)

        def check(offset: int | None) -> None:
            if offset is not None:
                self._check(group_id, offset)

        self._scene.network.call(client, broker, Request(handle, check, lambda: None, TIMEOUT_US))

    def _request(self, group_id: str) -> FetchGroup:
        return FetchGroup(group_id, (FetchTopic(self._topic, partition_indexes=(PARTITION,)),))

    def _check(self, group_id: str, offset: int) -> None:
        if offset >= 0 and self._promises():
            self._committed[group_id][offset].on_received(f"group {group_id}", f"offset {offset}")

    # The end

    def is_over(self) -> bool:
        """Whether every group is loaded, once faults have stopped."""
        shards = (newest_shard(self._scene, self._brokers, group_id) for group_id in self._groups)
        return not self._promises() or all(shard is not None for shard in shards)

    def check_all(self) -> None:
        """After all faults: each group has the offset of its last committed transaction.

        Raises InvariantViolatedError.
        """
        for group_id in self._groups:
            hosted = newest_shard(self._scene, self._brokers, group_id)
            if hosted is None or not self._promises():
                continue
            if hosted.shard.pending_offsets(group_id):
                raise InvariantViolatedError(f"group {group_id} has pending offsets, and no transaction is open")
            found = hosted.shard.offsets_of(group_id).get(self._topic, {}).get(PARTITION)
            offset = -1 if found is None else found.offset
            self._check(group_id, offset)
            committed = [one for one in self._acked[group_id] if self._committed[group_id][one].is_committed]
            if committed and max(committed) > offset:
                raise InvariantViolatedError(
                    f"group {group_id} has the offset {offset}, and {max(committed)} is committed"
                )


def _offset_in(answer: FetchedGroup) -> int | None:
    """The committed offset; None for an error, as while a transaction has one."""
    found = answer.topics[0].partitions[0] if answer.topics else None
    if answer.error_code != ErrorCode.NONE or found is None or found.error_code != ErrorCode.NONE:
        return None
    return found.committed_offset
