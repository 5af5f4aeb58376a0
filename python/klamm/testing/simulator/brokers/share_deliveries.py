"""What leaders deliver to the members of share groups, and the invariants of KIP-932.

1. Only one member at a time has acquired a record. Others may receive it after its lock has ended, after the member has
   released it, or after the member's session has ended. Locks are in a leader's memory: a share partition that is
   loaded again knows of none.
2. A record whose acknowledgement or rejection was answered is not delivered again in that leader epoch or a later one.
   A leader that was replaced and does not know it yet delivers from its old state, as in Apache Kafka.
3. The delivery count grows by one with each delivery, also across leaders from what was answered, up to the limit.
4. What is delivered is committed, and belongs to no aborted transaction if the group reads committed records only.
5. An acknowledgement is accepted only from the member that has acquired the record.
6. Every record is delivered, unless it was deleted, and finished only by an acknowledgement or by its last delivery.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.protocol.errors import ErrorCode
from klamm.testing.simulator.brokers.group_settings import LOCK_MS
from klamm.testing.simulator.brokers.history import batches_of
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klamm.protocol.messages.share_sessions import AcknowledgementBatch, AcquiredRecords, ShareFetchData
    from klamm.testing.simulator.brokers.broker import Broker
    from klamm.testing.simulator.brokers.history import Key, PartitionHistory

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL: Final = {GAP, ACCEPT, REJECT}


@dataclass(slots=True, eq=False)
class Hold:
    """A member has acquired a record."""

    member_id: str
    count: int
    until_ms: int
    asked: int | None = None
    """The type of an acknowledgement that has arrived."""
    is_free: bool = False
    """The member's session has ended."""


@dataclass(slots=True, eq=False)
class Load:
    """A share partition in the memory of a leader."""

    leader_epoch: int
    held: dict[int, Hold] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """Of the last delivery, by offset."""


class Asked(NamedTuple):
    """An acknowledgement that has arrived at a leader."""

    load: Load
    member_id: str
    arrived_ms: int
    held: list[tuple[int, int, Hold]]
    """Offset and type, of what the member holds."""
    strange: list[int]
    """Offsets in flight that it does not hold."""


class SharedPartition:
    """What is known of one partition in one share group."""

    def __init__(self, name: str, limit: int) -> None:
        self.name, self._limit = name, limit
        self._loads: dict[tuple[int, int, int], Load] = {}
        self._finished: dict[int, int] = {}
        """The leader epoch of the answer, by offset."""
        self._counted: dict[int, tuple[int, int]] = {}
        """The highest delivery count that was answered, with the leader epoch of that, by offset."""
        self.delivered: dict[int, int] = {}
        """The highest delivery count, by offset."""
        self.ended: set[int] = set()
        """The offsets that some member has asked to finish."""

    def load(self, broker: Broker, group_id: str, key: Key) -> tuple[Load, int] | None:
        """The share partition in the memory of that broker, and its start offset; None if it has none."""
        found = broker.engine.share_gauges(group_id, key)
        if found is None:
            return None
        number, leader_epoch, start_offset, _ = found
        return self._loads.setdefault((broker.id, broker.life, number), Load(leader_epoch)), start_offset

    def loads_of(self, broker: Broker) -> list[Load]:
        """Those in the memory of a broker."""
        return [load for place, load in self._loads.items() if place[:2] == (broker.id, broker.life)]

    def on_acquired(self, load: Load, member_id: str, records: AcquiredRecords, now_ms: int) -> None:
        """A member acquires records. Raises InvariantViolatedError."""
        count = records.delivery_count
        for offset in range(records.first_offset, records.last_offset + 1):
            self._check_delivery(load, member_id, offset, count, now_ms)
            load.held[offset] = Hold(member_id, count, now_ms + LOCK_MS)
            load.counts[offset] = count
            self.delivered[offset] = max(count, self.delivered.get(offset, 0))

    def _check_delivery(self, load: Load, member_id: str, offset: int, count: int, now_ms: int) -> None:
        epoch, hold, before = load.leader_epoch, load.held.get(offset), load.counts.get(offset)
        finished = self._finished.get(offset)
        if finished is not None and finished <= epoch:
            raise self._violation(f"epoch {epoch} delivers {offset}, which was finished in epoch {finished}")
        if hold is not None and now_ms < hold.until_ms and not hold.is_free and hold.asked != RELEASE:
            raise self._violation(f"{member_id} acquires {offset}, which {hold.member_id} has until {hold.until_ms} ms")
        least, most = 1, self.delivered.get(offset, 0) + 1
        answered = self._counted.get(offset)
        if before is not None:
            least = most = before + 1
        elif answered is not None and answered[1] <= epoch:
            least = answered[0] + 1
        if not least <= count <= min(most, self._limit):
            raise self._violation(
                f"epoch {epoch} delivers {offset} with the count {count}, which is from {least} to {most}, "
                f"and at most {self._limit}"
            )

    def on_asked(
        self, found: tuple[Load, int], member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> Asked:
        """Acknowledgements have arrived at a leader."""
        load, start_offset = found
        asked = Asked(load, member_id, now_ms, [], [])
        for offset, kind in _each(batches):
            if offset < start_offset:  # deleted meanwhile: the acknowledgement has no effect
                continue
            hold = load.held.get(offset)
            if hold is not None and hold.member_id == member_id and hold.asked is None:
                hold.asked = kind
                asked.held.append((offset, kind, hold))
                if kind in FINAL:
                    self.ended.add(offset)
            else:
                asked.strange.append(offset)
        return asked

    def on_answered(self, asked: Asked, code: int) -> None:
        """A leader answers them. Raises InvariantViolatedError."""
        load = asked.load
        for offset, kind, hold in asked.held:
            hold.asked = None
            if code != ErrorCode.NONE:
                continue
            has_moved = load.held.get(offset) is not hold
            if has_moved and kind != RELEASE:  # a released record may be acquired before the response is written
                raise self._violation(f"{asked.member_id} has acknowledged {offset}, which is given to another member")
            if kind == RENEW:
                hold.until_ms = asked.arrived_ms + LOCK_MS
                continue
            if not has_moved:
                del load.held[offset]
            self._on_settled(load.leader_epoch, offset, kind, hold.count)
        if code == ErrorCode.NONE and asked.strange:
            raise self._violation(f"{asked.member_id} acknowledges {asked.strange[0]} without having it")

    def _on_settled(self, epoch: int, offset: int, kind: int, count: int) -> None:
        if kind == RELEASE and count < self._limit:
            known = self._counted.get(offset, (0, epoch))
            self._counted[offset] = max(known, (count, epoch))
            return
        self._finished[offset] = min(epoch, self._finished.get(offset, epoch))
        later = [
            load.leader_epoch for load in self._loads.values() if load.leader_epoch > epoch and offset in load.counts
        ]
        if later:
            raise self._violation(f"epoch {epoch} finishes {offset}, which epoch {later[0]} has delivered")

    def is_exhausted(self, offset: int) -> bool:
        """Whether a record was delivered as often as it may be."""
        return self.delivered.get(offset, 0) >= self._limit

    def _violation(self, text: str) -> InvariantViolatedError:
        return InvariantViolatedError(f"{self.name}: {text}")


class ShareDeliveries:
    """All share partitions of a run."""

    def __init__(
        self,
        histories: dict[Key, PartitionHistory],
        limit: int,
        promises: Callable[[Key], bool],
        look: Callable[[int], None],
    ) -> None:
        """`promises`: whether nothing may be lost of a partition, nor of the logs of coordinators.

        `look` brings the histories up to date with a broker.
        """
        self._histories, self._limit, self._promises, self._look = histories, limit, promises, look
        self._partitions: dict[tuple[str, Key], SharedPartition] = {}
        self._sessions: dict[tuple[int, int, str], int] = {}
        """The connection of each session, by broker, its life and member."""
        self.on_received: Callable[[str, Key, bytes, list[tuple[int, int]]], None] = lambda *_: None
        """Called with the group, and what a member gets: batches, and the ranges that it has acquired."""

    def of(self, group_id: str, key: Key) -> SharedPartition:
        """One of them."""
        history = self._histories[key]
        return self._partitions.setdefault(
            (group_id, key), SharedPartition(f"{history.name} of {group_id}", self._limit)
        )

    # Sessions

    def on_opened(self, broker: Broker, member_id: str, connection_id: int) -> None:
        """A member opens a session: that of another connection ends, and its locks stay."""
        self._sessions[broker.id, broker.life, member_id] = connection_id

    def on_disconnected(self, broker: Broker, member_id: str, connection_id: int) -> None:
        """A connection of a member was closed."""
        if self._sessions.get((broker.id, broker.life, member_id)) == connection_id:
            self.on_closed(broker, member_id)

    def on_closed(self, broker: Broker, member_id: str) -> None:
        """The session of a member has ended."""
        self._sessions.pop((broker.id, broker.life, member_id), None)
        for partition in self._partitions.values():
            for load in partition.loads_of(broker):
                for hold in load.held.values():
                    hold.is_free |= hold.member_id == member_id

    # Requests

    def on_asked(
        self, broker: Broker, group_id: str, member_id: str, acks: dict[Key, Sequence[AcknowledgementBatch]]
    ) -> dict[Key, Asked]:
        """Acknowledgements have arrived."""
        asked: dict[Key, Asked] = {}
        for key, batches in acks.items():
            partition = self.of(group_id, key)
            found = partition.load(broker, group_id, key)
            if found is not None and batches:
                asked[key] = partition.on_asked(found, member_id, batches, broker.now_ms)
        return asked

    def on_answered(self, group_id: str, asked: dict[Key, Asked], codes: dict[Key, int]) -> None:
        """They are answered; those without a code were refused. Raises InvariantViolatedError."""
        for key, one in asked.items():
            code = codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if self._promises(key):
                self.of(group_id, key).on_answered(one, code)

    def on_fetched(self, broker: Broker, group_id: str, member_id: str, key: Key, data: ShareFetchData) -> None:
        """A leader answers a fetch with records. Raises InvariantViolatedError."""
        if not data.acquired_records or not self._promises(key):
            return
        partition, history = self.of(group_id, key), self._histories[key]
        found = partition.load(broker, group_id, key)
        if found is None:
            raise InvariantViolatedError(f"{partition.name}: broker {broker.id} delivers without a share partition")
        ranges = [(each.first_offset, each.last_offset) for each in data.acquired_records]
        for each in data.acquired_records:
            partition.on_acquired(found[0], member_id, each, broker.now_ms)
        self._look(broker.id)
        batches = batches_of(data.records or b"")
        history.check_consumed(broker.id, ranges[0][0], batches)
        if not batches or batches[-1].end_offset <= ranges[-1][1]:
            raise InvariantViolatedError(
                f"{partition.name}: {member_id} acquires {ranges[-1]} and gets no record of it"
            )
        self.on_received(group_id, key, data.records or b"", ranges)


def _each(batches: Sequence[AcknowledgementBatch]) -> list[tuple[int, int]]:
    return [
        (offset, batch.acknowledge_types[0])
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    ]
