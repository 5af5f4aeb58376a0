"""The voters in force are those of the newest record in the log, committed or not. Source: KIP-853; Raft 4.1.

Compares the fast way, which follows appends and truncations, with the slow one, which reads the whole log.
"""

from klamm.raft.voters.voter_set import VotersInLog
from klamm.testing.simulator import descriptions as words
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class VotersOfLog:
    """Compares them when either may have changed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[VotersInLog, VotersInLog]] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """The voters in force are those of its log; not checked if it crashes while it installs a snapshot."""
        if touched.core is None or touched.is_dying:
            return
        in_force, in_log = seen = touched.core.replica.voters_in_log, touched.known_voters()
        before, self._seen[touched.id] = self._seen.get(touched.id), seen
        if before == seen:  # the newer objects are kept: the next comparison finds the same ones, which is quicker
            return
        if in_force.voters != in_log.voters or in_force.kraft_version != in_log.kraft_version:
            shown, meant = words.of_voters(in_force), words.of_voters(in_log)
            raise InvariantViolatedError(f"{touched.id} goes by {shown}, and its log says {meant}")
