"""What is committed in each partition, and what every log ever held: the invariants of replication.

Sources: the model of KIP-966 (`kip_966.tla`), KIP-101, KIP-279; `ReplicaManager` of Apache Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from klamm._engine.records import record_batches
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.simulation import ReplicaGauges


Key = tuple[bytes, int]
"""Topic id and partition."""


class BatchAt(NamedTuple):
    """A batch of a log."""

    base_offset: int
    end_offset: int
    epoch: int
    content: bytes


def batches_of(data: bytes) -> list[BatchAt]:
    """The batches of a log's bytes."""
    return [
        BatchAt(batch.base_offset, batch.last_offset + 1, batch.leader_epoch, bytes(batch))
        for batch in record_batches(data)
    ]


class PartitionHistory:
    """What is known of one partition.

    1. Log matching: an offset and an epoch identify one batch in all logs, and all before it.
    2. Committed batches are never changed.
    3. Leader completeness: a leader holds all that was committed in earlier epochs.
    4. One leader per leader epoch.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: list[BatchAt] = []
        self.committed_epoch = -1  # the highest leader epoch that has committed something
        self._known: dict[tuple[int, int], tuple[bytes, int]] = {}  # by offset and epoch: content, and the batch before
        self._leaders: dict[int, int] = {}

    @property
    def committed_end(self) -> int:
        """The offset after the last committed batch."""
        return self.committed[-1].end_offset if self.committed else 0

    def check_log(self, broker_id: int, chain: list[BatchAt], start: int) -> None:
        """The batches of that broker's log from number `start` on are new, or equal to those elsewhere."""
        for at in range(start, len(chain)):
            batch = chain[at]
            before = chain[at - 1].epoch if at else -1
            known = self._known.setdefault((batch.base_offset, batch.epoch), (batch.content, before))
            if known != (batch.content, before):
                raise InvariantViolatedError(
                    f"{self.name}: broker {broker_id} has another batch at {batch.base_offset} of epoch {batch.epoch}"
                )

    def check_leader(self, broker_id: int, gauges: ReplicaGauges, chain: list[BatchAt]) -> None:
        """A broker leads: it is alone in its epoch, holds what earlier epochs committed, and commits no other."""
        epoch = gauges.leader_epoch
        if self._leaders.setdefault(epoch, broker_id) != broker_id:
            raise InvariantViolatedError(
                f"{self.name}: brokers {self._leaders[epoch]} and {broker_id} lead epoch {epoch}"
            )
        if epoch >= self.committed_epoch:
            self._check_complete(f"broker {broker_id}, which leads epoch {epoch},", chain)
        for batch in chain[len(self.committed) :]:
            if batch.end_offset > gauges.high_watermark:
                break
            self.committed.append(batch)
            self.committed_epoch = max(self.committed_epoch, epoch)
        count = min(len(chain), len(self.committed))
        while count and chain[count - 1].end_offset > gauges.high_watermark:
            count -= 1
        if count and chain[count - 1] != self.committed[count - 1]:  # by log matching, what is before it is equal
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} commits {chain[count - 1]} instead of {self.committed[count - 1]}"
            )

    def _check_complete(self, who: str, chain: list[BatchAt]) -> None:
        count = len(self.committed)
        if len(chain) < count:
            raise InvariantViolatedError(
                f"{self.name}: {who} ends at {chain[-1].end_offset if chain else 0}, "
                f"and {self.committed_end} is committed"
            )
        if count and chain[count - 1] != self.committed[-1]:
            raise InvariantViolatedError(f"{self.name}: {who} lacks {self.committed[-1]}: it has {chain[count - 1]}")

    def check_member(self, broker_id: int, gauges: ReplicaGauges) -> None:
        """A member of the ISR holds all that is committed, on its disk."""
        if gauges.flushed_offset < self.committed_end:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} is in the ISR with {gauges.flushed_offset} flushed, "
                f"and {self.committed_end} is committed"
            )

    def check_acked(self, broker_id: int, content: bytes, end_offset: int) -> None:
        """What is acknowledged by all is committed."""
        at = bisect_left(self.committed, end_offset, key=lambda batch: batch.end_offset)
        found = self.committed[at] if at < len(self.committed) else None
        if found is None or found.end_offset != end_offset or not same_records(found.content, content):
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} acknowledges the batch up to {end_offset}, which is not committed "
                f"({self.committed_end} is)"
            )


def same_records(one: bytes, other: bytes) -> bool:
    """Whether two batches have the same records: the leader assigns offset, epoch and checksums."""
    return one[61:] == other[61:]
