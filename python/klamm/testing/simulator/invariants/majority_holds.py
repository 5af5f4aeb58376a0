"""A majority of the voters has all committed records on disk. Source: Raft 5.3; records are durable when acknowledged.

Stronger than Apache Kafka's guarantee: its leader counts itself before its fsync (`KafkaRaftClient.appendBatch`).
"""

from klamm.raft.voters.quorum import majority_size
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.lost_records import has_lost_records
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class MajorityHolds:
    """Counts the disks, of stopped replicas too, of the voters that committed the newest record.

    A lost disk counts with its former content as long as the voter set names it, because its vote is lost with it. The
    same applies to a damaged log until its records are restored: it must not vote before.
    """

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history
        self._count = 0  # of the history when the holders were found
        self._voters = VoterSet(())
        self._holders: set[ReplicaKey] = set()

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Enough voters have flushed the history."""
        count = len(self.history.chains)
        if count != self._count:
            self._count, self._voters = count, touched.running.replica.voters
            self._holders = {key for replica in replicas.values() for key in self._holding(replica, count)}
        elif not self._holds(touched, count):
            self._holders.discard(touched.key)
        else:
            self._holders.add(touched.key)  # who came late counts when another is lost
            return
        if count and self._count_holding() < majority_size(len(self._voters)):
            shown = sorted(key.id for key in self._holders)
            raise InvariantViolatedError(f"only the disks of {shown} hold {count} committed records")

    def _count_holding(self) -> int:
        holders = self._holders
        return sum(voter.key in holders or any(map(voter.key.matches, holders)) for voter in self._voters.voters)

    def _holding(self, replica: SimulatedReplica, count: int) -> list[ReplicaKey]:
        lost = [
            disk.key
            for disk in replica.lost
            if disk.log.flushed_offset >= count and self.history.is_in(disk.chains, count)
        ]
        return [*lost, replica.key] if self._holds(replica, count) else lost

    def _holds(self, replica: SimulatedReplica, count: int) -> bool:
        held = replica.before_damage
        if held is not None and has_lost_records(replica):
            return held.log.flushed_offset >= count and self.history.is_in(held.chains, count)
        return replica.log.flushed_offset >= count and self.history.agrees_with(replica, count)
