"""An offset and an epoch name one record and all before it, in all logs, for good.

Source: Raft, figure 3, Log Matching; Kafka's own reason why a restarted leader resigns (facts 4.1).
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.replica import SimulatedReplica


class LogMatching:
    """Remembers the chain of every (offset, epoch) that any log ever held, even one that lost it again."""

    def __init__(self) -> None:
        self.chains: dict[tuple[int, int], int] = {}
        self._checked: dict[int, list[int]] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """What was appended since the last look is new, or the same as elsewhere."""
        known, chains = self._checked.setdefault(touched.id, []), touched.chains
        start = min(len(known), len(chains))
        while start and known[start - 1] != chains[start - 1]:
            start -= 1
        del known[start:]
        for offset in range(start, len(chains)):
            epoch = touched.log.records[offset].epoch
            if self.chains.setdefault((offset, epoch), chains[offset]) != chains[offset]:
                raise InvariantViolatedError(f"{touched.id} has another record at offset {offset} of epoch {epoch}")
            known.append(chains[offset])
