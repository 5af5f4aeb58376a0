"""A leader's epoch begins with its LeaderChange record, before any record of a client. Source: KIP-595."""

from klamm.raft.election.role_states import Leader
from klamm.raft.log.control_records import LEADER_CHANGE
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class EpochBegins:
    """Checks the first record of each epoch."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The first record that a leader appends names it as leader."""
        state = touched.core.replica.state if touched.core is not None else None
        if not isinstance(state, Leader) or touched.epoch in self._seen:
            return
        log, start = touched.log, state.epoch_start_offset
        if not log.start_offset <= start < log.end_offset:
            return
        self._seen.add(touched.epoch)
        record = log.records[start - log.start_offset]
        if record.type != LEADER_CHANGE:
            raise InvariantViolatedError(f"epoch {touched.epoch} of {touched.id} begins with {record.value!r}")
