"""The leader of an epoch has all records committed in earlier ones. Source: Raft, figure 3, Leader Completeness."""

from klamm.raft.election.roles import Role
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class LeaderCompleteness:
    """Checks the leader of the newest epoch; an older one need not have later records."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history
        self._newest_epoch = 0

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The newest leader's log contains the history."""
        if touched.role is not Role.LEADER or touched.epoch < self._newest_epoch:
            return
        self._newest_epoch = touched.epoch
        count = len(self.history.chains)
        if not self.history.agrees_with(touched, count):
            raise InvariantViolatedError(f"{touched.id} leads epoch {touched.epoch} without all {count} committed")
