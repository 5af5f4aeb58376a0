"""At most one leader is elected in an epoch. Source: Raft, figure 3, Election Safety; KIP-595."""

from klamm.raft.roles import Role
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.replica import SimulatedReplica


class ElectionSafety:
    """Remembers who led each epoch, for good."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The leader of an epoch is the one it always was."""
        if touched.role is Role.LEADER:
            leader_id = self.leaders.setdefault(touched.epoch, touched.id)
            if leader_id != touched.id:
                raise InvariantViolatedError(f"epoch {touched.epoch} was led by {leader_id}, and now by {touched.id}")
