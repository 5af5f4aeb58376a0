"""Transactional commits that wait until the transaction coordinator has verified their transaction (KIP-890).

The transaction may end meanwhile. A commit after its marker would be pending without a transaction, and the next marker
of the producer would decide it, so such a commit is refused.
"""

from __future__ import annotations

from klamm.coordinator.runtime.log import Producer
from klamm.protocol.errors import ErrorCode


class Verification:
    """One commit that waits. `is_adding`: the answer also adds the partition to the transaction."""

    __slots__ = ("_ended_by", "is_adding", "producer")

    def __init__(self, producer: Producer, *, is_adding: bool) -> None:
        self.producer = producer
        self.is_adding = is_adding
        self._ended_by: int | None = None

    def on_marker(self, epoch: int) -> None:
        """A marker of the producer was written."""
        # A producer that learned its next epoch from EndTxn commits to the next transaction before this marker.
        if not (self.is_adding and self.producer.epoch == epoch):
            self._ended_by = epoch

    @property
    def error(self) -> ErrorCode:
        """Why the commit must be refused; NONE while its transaction may be open."""
        if self._ended_by is None:
            return ErrorCode.NONE
        is_older = self.producer.epoch < self._ended_by
        return ErrorCode.INVALID_PRODUCER_EPOCH if is_older else ErrorCode.INVALID_TXN_STATE


class Verifications:
    """All commits of a shard that wait, by producer id."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[Verification]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def begin(self, producer: Producer, *, is_adding: bool) -> Verification:
        """A commit is about to be verified. The caller ends it."""
        verification = Verification(producer, is_adding=is_adding)
        self._waiting.setdefault(producer.producer_id, set()).add(verification)
        return verification

    def end(self, verification: Verification) -> None:
        """The commit is decided. Nothing happens if it was ended before."""
        waiting = self._waiting.get(verification.producer.producer_id, set())
        waiting.discard(verification)
        if not waiting:
            self._waiting.pop(verification.producer.producer_id, None)

    def on_marker(self, producer: Producer) -> None:
        """A marker of the producer was written."""
        for verification in self._waiting.get(producer.producer_id, ()):
            verification.on_marker(producer.epoch)
