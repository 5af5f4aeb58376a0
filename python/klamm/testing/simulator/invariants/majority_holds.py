"""A majority of the voters holds on its disks what is committed. Source: Raft 5.3; design: durable before acknowledged.

Stronger than what Apache Kafka promises, whose leader counts itself before its fsync (facts 10.1, 8).
"""

from klamm.raft.quorum import majority_size
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.replica import SimulatedReplica


class MajorityHolds:
    """Counts disks, those of dead replicas too."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history
        self._count = 0  # of the history when the holders were found
        self._holders: set[int] = set()

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Enough voters have flushed the history."""
        count = len(self.history.chains)
        if count != self._count:
            self._count = count
            self._holders = {node_id for node_id, replica in replicas.items() if self._holds(replica, count)}
        elif not self._holds(touched, count):
            self._holders.discard(touched.id)
        else:
            self._holders.add(touched.id)  # who came late counts when another is lost
            return
        voter_count = sum(replica.is_voter for replica in replicas.values())
        if count and len(self._holders) < majority_size(voter_count):
            raise InvariantViolatedError(f"only the disks of {sorted(self._holders)} hold {count} committed records")

    def _holds(self, replica: SimulatedReplica, count: int) -> bool:
        is_durable = replica.is_voter and replica.log.flushed_offset >= count
        return is_durable and self.history.agrees_with(replica, count)
