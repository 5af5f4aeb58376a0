"""Committed records never change. Source: Raft, figure 3, State Machine Safety."""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class CommittedImmutable:
    """Compares each replica below its high watermark with the history."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Its committed records are equal to the history, or extend it."""
        high_watermark = touched.reported_high_watermark
        if high_watermark <= 0:
            return
        if high_watermark > len(touched.chains):
            raise InvariantViolatedError(
                f"{touched.id} has high watermark {high_watermark} and a log that ends at {len(touched.chains)}"
            )
        # A crash may come between a snapshot's installation and the report of its high watermark.
        known = min(max(high_watermark, touched.log.start_offset), len(self.history.chains))
        if not self.history.agrees_with(touched, known):
            raise InvariantViolatedError(f"{touched.id} has other committed records below offset {known}")
        self.history.extend(touched)
