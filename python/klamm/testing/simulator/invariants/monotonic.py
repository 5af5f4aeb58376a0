"""Epoch and high watermark never fall. Source: KIP-595; KafkaRaftClient refuses both as fatal (facts 2.6).

The epoch never falls below what a replica told anyone, in all lives with one disk; the high watermark within one life.
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.replica import SimulatedReplica


class Monotonic:
    """Remembers what each replica had and said."""

    def __init__(self) -> None:
        self._told_epochs: dict[tuple[int, int], int] = {}  # by replica and disk
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Neither has fallen."""
        if not touched.is_up:
            return
        disk = (touched.id, touched.wipes)
        told = self._told_epochs.get(disk, 0)
        if touched.epoch < told:
            raise InvariantViolatedError(f"{touched.id} is at epoch {touched.epoch} after it told of {told}")
        if touched.outbox:
            messages = [envelope.response or envelope.request for envelope in touched.outbox]
            spoken = [getattr(message, "epoch", 0) for message in messages]  # of voter changes only some tell one
            self._told_epochs[disk] = max(told, *spoken)
        life = (touched.id, touched.life)
        before = self._high_watermarks.get(life, -1)
        if touched.high_watermark < before:
            raise InvariantViolatedError(f"{touched.id}: high watermark {before} fell to {touched.high_watermark}")
        self._high_watermarks[life] = touched.high_watermark
