"""The state of a state machine is the fold of all records below its applied offset, with any number of snapshots.

Source: Raft, section 7 and figure 3, State Machine Safety; KIP-630.
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class StateIsFold:
    """Compares the state machine of a replica with the history."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The state is equal to the history's, up to the offset that the replica reports."""
        if not touched.is_up:
            return
        applied = touched.applied
        if applied < touched.log.start_offset and not touched.is_dying:
            raise InvariantViolatedError(
                f"{touched.id} has applied {applied} records, and its log begins at {touched.log.start_offset}"
            )
        if applied < touched.high_watermark and not touched.is_dying:
            raise InvariantViolatedError(
                f"{touched.id} has applied {applied} records of {touched.high_watermark} that it knows to be committed"
            )
        if applied > max(touched.high_watermark, touched.loaded_at_start) and not touched.is_dying:
            raise InvariantViolatedError(
                f"{touched.id} has applied {applied} records, and knows {touched.high_watermark} to be committed"
            )
        if applied > len(self.history.chains):
            raise InvariantViolatedError(f"{touched.id} has applied {applied} records that are not committed")
        if applied and touched.state != self.history.chains[applied - 1]:
            raise InvariantViolatedError(f"{touched.id} holds another state after {applied} records")
