"""Epoch and high watermark never decrease. Source: KIP-595; KafkaRaftClient treats both as fatal.

The epoch is never lower than one that the replica has sent, in all lives with one disk; the high watermark never
decreases within one life.
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class Monotonic:
    """Remembers the state and messages of each replica."""

    def __init__(self) -> None:
        self._sent_epochs: dict[tuple[int, int], int] = {}  # by replica and disk
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Neither has decreased."""
        if not touched.is_up:
            return
        sent = self._sent_epochs.get((touched.id, touched.wipes), 0)
        if touched.epoch < sent:
            raise InvariantViolatedError(f"{touched.id} is at epoch {touched.epoch} after it sent epoch {sent}")
        life = (touched.id, touched.life)
        before = self._high_watermarks.get(life, -1)
        if touched.high_watermark < before:
            raise InvariantViolatedError(f"{touched.id}: high watermark {before} fell to {touched.high_watermark}")
        self._high_watermarks[life] = touched.high_watermark

    def check_messages(self, touched: SimulatedReplica) -> None:
        """It sends no epoch above its own."""
        disk, epoch = (touched.id, touched.wipes), touched.epoch
        sent = self._sent_epochs.get(disk, 0)
        for envelope in touched.outbox:
            epoch_sent = getattr(
                envelope.response or envelope.request, "epoch", 0
            )  # only some messages of voter changes have one
            if epoch_sent > epoch:
                raise InvariantViolatedError(f"{touched.id} sent epoch {epoch_sent}, and is at {epoch}")
            sent = max(sent, epoch_sent)
        self._sent_epochs[disk] = sent
