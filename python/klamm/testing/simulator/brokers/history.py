"""What is committed in each partition, and what every log ever held: the invariants of replication.

Sources: the model of KIP-966 (`kip_966.tla`), KIP-101, KIP-279; `ReplicaManager` of Apache Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from klamm._engine.records import record_batches
from klamm.testing.simulator.invariants import InvariantViolatedError

if TYPE_CHECKING:
    from klamm._engine.metadata import PartitionInfo
    from klamm._engine.simulation import ReplicaGauges


Key = tuple[bytes, int]
"""Topic id and partition."""


Place = tuple[int, int]
"""Base offset and leader epoch of a batch."""


class BatchAt(NamedTuple):
    """A batch of a log."""

    base_offset: int
    end_offset: int
    epoch: int
    content: bytes

    @property
    def place(self) -> Place:
        """What identifies it."""
        return self.base_offset, self.epoch


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
    5. A member of the ISR holds all that is committed.
    6. What is below a follower's high watermark is committed, and so is what a consumer reads.
    7. A leader begins its log at most at its high watermark, and tells no end offset below what is committed.

    An unclean election may lose what its leader lacks: from its epoch on, what that leader holds is committed, and what
    leaders of earlier epochs commit from then on is lost as well. Where an acknowledged batch is not flushed, the same
    begins when no replica that may be elected without a request has kept what is committed through all power cuts.
    """

    def __init__(self, name: str, *, is_flushed: bool = True) -> None:
        self.name = name
        self._is_flushed = is_flushed  # an acknowledged batch is on the disk of each member of the ISR
        self._keepers: set[int] = set()  # otherwise: the brokers that have kept all that is committed
        self.committed: list[BatchAt] = []
        self.committed_epoch = -1  # the highest leader epoch that has committed something
        self.lost: set[BatchAt] = set()
        self._unclean_epoch = -1  # of the newest unclean election
        self._survived_epoch = -1  # of the newest one whose leader has been seen
        self._known: dict[Place, tuple[BatchAt, Place | None]] = {}  # each batch, and the one before it
        self._leaders: dict[int, int] = {}
        self._deleted_end = 0  # what is below it counts no longer

    @property
    def committed_end(self) -> int:
        """The offset after the last committed batch."""
        return self.committed[-1].end_offset if self.committed else 0

    @property
    def deleted_end(self) -> int:
        """Up to where some leader has deleted: a power cut may bring records back."""
        return self._deleted_end

    @property
    def may_lack_records(self) -> bool:
        """Whether committed records may have been lost, by an unclean election or a power cut."""
        return self._unclean_epoch >= 0

    def on_unclean_election(self, leader_epoch: int) -> None:
        """The controller elects a leader that may lack committed batches."""
        self._unclean_epoch = leader_epoch

    def on_change(self, was: PartitionInfo | None, partition: PartitionInfo) -> None:
        """The controller changed the partition."""
        if was is None:
            self._keepers = set(partition.isr)
        is_election = was is not None and was.leader_epoch < partition.leader_epoch and partition.leader >= 0
        self._keepers &= {*partition.isr, *partition.elr}
        self._maybe_lose(partition.leader_epoch if is_election else partition.leader_epoch + 1)

    def on_power_cut(self, broker_id: int, leader_epoch: int) -> None:
        """A broker lost what it had not flushed, while this was the leader epoch."""
        self._keepers.discard(broker_id)
        self._maybe_lose(leader_epoch + 1)

    def _maybe_lose(self, from_epoch: int) -> None:
        is_lost = self._survived_epoch < self._unclean_epoch <= from_epoch
        if not self._is_flushed and not self._keepers and not is_lost:
            self._unclean_epoch = from_epoch

    def held_end(self, gauges: ReplicaGauges) -> int:
        """Up to where a replica counts."""
        return gauges.flushed_offset if self._is_flushed else gauges.log_end_offset

    def check_log(self, broker_id: int, chain: list[BatchAt], start: int) -> None:
        """The batches of that broker's log from number `start` on are new, or equal to those elsewhere."""
        for at in range(start, len(chain)):
            batch, before = chain[at], (chain[at - 1].place if at else None)
            known, known_before = self._known.setdefault(batch.place, (batch, before))
            # A follower that ends where its leader begins keeps what it had before that. It begins there, too, but a
            # power cut may bring those records back, also some that were never committed.
            if known != batch or (known_before != before and batch.base_offset > self._deleted_end):
                raise InvariantViolatedError(
                    f"{self.name}: broker {broker_id} has another batch at {batch.base_offset} of epoch {batch.epoch}"
                )

    def before(self, first: BatchAt) -> list[BatchAt] | None:
        """What was before this batch, with which a log begins now; None if no log had it yet."""
        known = self._known.get(first.place)
        if known is None:
            return None
        found: list[BatchAt] = []
        place = known[1]
        while place is not None:
            batch, place = self._known[place]
            found.append(batch)
        return found[::-1]

    def committed_upto(self, offset: int) -> list[BatchAt]:
        """What was in an empty log that begins at this offset."""
        return self.committed[: bisect_right(self.committed, offset, key=_end)]

    def check_follower(self, broker_id: int, gauges: ReplicaGauges, chain: list[BatchAt]) -> None:
        """What is below a follower's high watermark is in its log, and committed."""
        if gauges.high_watermark > gauges.log_end_offset:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} has the high watermark {gauges.high_watermark}, "
                f"and its log ends at {gauges.log_end_offset}"
            )
        if self._survived_epoch < self._unclean_epoch:
            return
        at = bisect_right(chain, gauges.high_watermark, key=_end) - 1
        if at < 0 or chain[at].end_offset <= max(gauges.log_start_offset, self._deleted_end):
            return
        if chain[at] in self.lost or (at < len(self.committed) and chain[at] == self.committed[at]):
            return
        raise InvariantViolatedError(
            f"{self.name}: broker {broker_id} has the high watermark {gauges.high_watermark}, "
            f"and {chain[at]} is not committed"
        )

    def check_leader(self, broker_id: int, gauges: ReplicaGauges, chain: list[BatchAt]) -> None:
        """A broker leads: it is alone in its epoch, holds what earlier epochs committed, and commits no other."""
        epoch = gauges.leader_epoch
        if gauges.log_start_offset > gauges.high_watermark:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} begins at {gauges.log_start_offset}, "
                f"above its high watermark {gauges.high_watermark}"
            )
        if self._leaders.setdefault(epoch, broker_id) != broker_id:
            raise InvariantViolatedError(
                f"{self.name}: brokers {self._leaders[epoch]} and {broker_id} lead epoch {epoch}"
            )
        if epoch < self._unclean_epoch:
            self._lose_of_old_leader(gauges, chain)
            return
        if self._survived_epoch < self._unclean_epoch:
            self._survived_epoch = self._unclean_epoch
            self._lose_all_but(chain, self.held_end(gauges))
            self._deleted_end = min(self._deleted_end, self.committed_end)
            self._keepers = {broker_id}
        if epoch >= self.committed_epoch:
            self._check_complete(f"broker {broker_id}, which leads epoch {epoch},", chain)
        self._deleted_end = max(self._deleted_end, gauges.log_start_offset)
        # Above what it has flushed, a leader only knows of what others have committed before it.
        committed_end = min(gauges.high_watermark, self.held_end(gauges))
        for batch in chain[len(self.committed) :]:
            if batch.end_offset > committed_end:
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

    def _lose_of_old_leader(self, gauges: ReplicaGauges, chain: list[BatchAt]) -> None:
        for at in range(len(chain) - 1, -1, -1):
            batch = chain[at]
            if batch in self.lost or (at < len(self.committed) and self.committed[at] == batch):
                break
            if batch.end_offset <= gauges.high_watermark:
                self.lost.add(batch)

    def _lose_all_but(self, chain: list[BatchAt], end: int) -> None:
        count = min(len(chain), len(self.committed))
        while count and (chain[count - 1] != self.committed[count - 1] or chain[count - 1].end_offset > end):
            count -= 1
        self.lost.update(self.committed[count:])
        del self.committed[count:]

    def _check_complete(self, who: str, chain: list[BatchAt]) -> None:
        count = len(self.committed)
        if len(chain) < count:
            raise InvariantViolatedError(
                f"{self.name}: {who} ends at {chain[-1].end_offset if chain else 0}, "
                f"and {self.committed_end} is committed"
            )
        if count and chain[count - 1] != self.committed[-1]:
            raise InvariantViolatedError(f"{self.name}: {who} lacks {self.committed[-1]}: it has {chain[count - 1]}")

    def check_member(self, broker_id: int, gauges: ReplicaGauges, chain: list[BatchAt]) -> None:
        """A member of the ISR holds all that is committed, on its disk if it must be there."""
        if self._survived_epoch < self._unclean_epoch:
            return
        held_end = self.held_end(gauges)
        if held_end < self.committed_end:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} is in the ISR and holds {held_end}, "
                f"and {self.committed_end} is committed"
            )
        is_empty = gauges.log_start_offset == gauges.log_end_offset  # nothing more is known of it
        if not is_empty and self._deleted_end < self.committed_end:
            self._check_complete(f"broker {broker_id}, which is in the ISR,", chain)
        self._keepers.add(broker_id)

    def check_end_offset(self, broker_id: int, gauges: ReplicaGauges, end_offset: int) -> None:
        """A leader returns no end offset below what consumers have read (KIP-207)."""
        if gauges.leader_epoch < max(self._unclean_epoch, self.committed_epoch):
            return
        if self._survived_epoch >= self._unclean_epoch and end_offset < self.committed_end:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} returns the end offset {end_offset}, "
                f"and {self.committed_end} is committed"
            )

    def check_acked(
        self, broker_id: int, gauges: ReplicaGauges, content: bytes, end_offset: int, *, has_own_epoch: bool = True
    ) -> None:
        """What is acknowledged by all is committed.

        `has_own_epoch`: whether no other instance of the producer has got the same producer epoch. Otherwise the batch
        may be taken for a repeated one of that instance.
        """
        if gauges.leader_epoch < self._unclean_epoch:
            return
        at = bisect_left(self.committed, end_offset, key=_end)
        found = self.committed[at] if at < len(self.committed) else None
        is_equal = same_records if has_own_epoch else same_sequences
        if found is None or found.end_offset != end_offset or not is_equal(found.content, content):
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} acknowledges the batch up to {end_offset}, which is not committed "
                f"({self.committed_end} is)"
            )

    def check_consumed(self, broker_id: int, offset: int, batches: list[BatchAt]) -> None:
        """What a consumer receives contains the offset that it asked for, and is committed, or is lost."""
        if not batches:
            return
        if not batches[0].base_offset <= offset < batches[0].end_offset:
            raise InvariantViolatedError(
                f"{self.name}: broker {broker_id} returns {batches[0]} to a consumer that asks for {offset}"
            )
        at = bisect_left(self.committed, batches[0].end_offset, key=_end)
        if self.committed[at : at + len(batches)] == batches:
            return
        known = self.lost.union(self.committed)
        for batch in batches:
            if batch not in known:
                raise InvariantViolatedError(f"{self.name}: broker {broker_id} returns {batch} to a consumer")


_end = attrgetter("end_offset")


def same_sequences(one: bytes, other: bytes) -> bool:
    """Whether a broker takes two batches for the same: by producer id, epoch, first sequence and number of records."""
    return one[43:61] == other[43:61]


def same_records(one: bytes, other: bytes) -> bool:
    """Whether two batches have the same records: the leader assigns offset, epoch and checksums."""
    return one[61:] == other[61:]
