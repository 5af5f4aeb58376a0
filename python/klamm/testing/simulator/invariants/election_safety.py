"""At most one leader is elected in an epoch. Source: Raft, figure 3, Election Safety; KIP-595."""

from klamm.raft.election.role_states import Leader
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class ElectionSafety:
    """Remembers the leader of each epoch."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The leader of an epoch never changes."""
        if _is_elected(touched):
            leader_id = self.leaders.setdefault(touched.epoch, touched.id)
            if leader_id != touched.id:
                raise InvariantViolatedError(f"epoch {touched.epoch} was led by {leader_id}, and now by {touched.id}")


def _is_elected(touched: SimulatedReplica) -> bool:
    """Whether it leads by votes that survive a crash.

    Other voters grant a vote only to a candidate whose own vote is durable. A sole voter is its own majority before its
    vote is durable: until then it sends and appends nothing, and after a crash it has never led.
    """
    replica = touched.core.replica if touched.core is not None else None
    if replica is None or not isinstance(state := replica.state, Leader):
        return False
    return not replica.voters.is_only_voter(replica.key) or replica.durable_ticket >= state.ticket
