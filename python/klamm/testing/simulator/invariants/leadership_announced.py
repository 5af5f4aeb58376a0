"""Leadership is announced after all records committed by earlier leaders are applied. Source: Raft 5.4.2, 6.4.

It compares with the committed history, because the replica's own high watermark may be older.
"""

from bisect import bisect_left

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class LeadershipAnnounced:
    """Checks what a replica had applied when it was notified of its leadership."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The state included every committed record of earlier epochs."""
        if touched.announced is None:
            return
        epoch, applied = touched.announced
        needed = bisect_left(self.history.epochs, epoch)
        if applied < needed:
            raise InvariantViolatedError(
                f"{touched.id} was notified that it leads epoch {epoch} when it had applied {applied} records, and "
                f"{needed} of earlier epochs are committed"
            )
