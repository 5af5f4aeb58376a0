"""The voters in force are those of the newest record in the log, committed or not. Source: KIP-853; Raft 4.1.

The fast way, which follows what is appended and cut, against the slow one, which reads the whole log again.
"""

from klamm.testing.simulator import words
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.replica import SimulatedReplica


class VotersOfLog:
    """Reads a log again when it has changed."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int, int, int]] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """What it goes by is what its log says."""
        log = touched.log
        seen = (touched.life, log.start_offset, log.end_offset, log.last_epoch)
        if touched.core is None or self._seen.get(touched.id) == seen:
            return
        self._seen[touched.id] = seen
        in_force, in_log = touched.core.replica.voters_in_log, touched.known_voters()
        if in_force.voters != in_log.voters or in_force.kraft_version != in_log.kraft_version:
            shown, meant = words.of_voters(in_force), words.of_voters(in_log)
            raise InvariantViolatedError(f"{touched.id} goes by {shown}, and its log says {meant}")
