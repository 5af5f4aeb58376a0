"""Epoch and high watermark never fall. Source: KIP-595; KafkaRaftClient refuses both as fatal.

The epoch never falls below one that the replica has sent, over all lives with one disk; the high watermark not within
one life.
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class Monotonic:
    """Remembers what each replica had and said."""

    def __init__(self) -> None:
        self._told_epochs: dict[tuple[int, int], int] = {}  # by replica and disk
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Neither has fallen."""
        if not touched.is_up:
            return
        told = self._told_epochs.get((touched.id, touched.wipes), 0)
        if touched.epoch < told:
            raise InvariantViolatedError(f"{touched.id} is at epoch {touched.epoch} after it told of {told}")
        life = (touched.id, touched.life)
        before = self._high_watermarks.get(life, -1)
        if touched.high_watermark < before:
            raise InvariantViolatedError(f"{touched.id}: high watermark {before} fell to {touched.high_watermark}")
        self._high_watermarks[life] = touched.high_watermark

    def check_messages(self, touched: SimulatedReplica) -> None:
        """It sends no epoch above its own."""
        disk, epoch = (touched.id, touched.wipes), touched.epoch
        told = self._told_epochs.get(disk, 0)
        for envelope in touched.outbox:
            spoken = getattr(envelope.response or envelope.request, "epoch", 0)  # of voter changes only some tell one
            if spoken > epoch:
                raise InvariantViolatedError(f"{touched.id} tells of epoch {spoken}, and is at {epoch}")
            told = max(told, spoken)
        self._told_epochs[disk] = told
