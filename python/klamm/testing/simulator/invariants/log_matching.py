"""In all logs, an offset and an epoch identify one record and all records before it.

Source: Raft, figure 3, Log Matching; Kafka's own reason why a restarted leader resigns (`QuorumState.initialize`).
"""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class LogMatching:
    """Remembers the chain of every (offset, epoch) that any log ever had, even after truncation."""

    def __init__(self) -> None:
        self.chains: dict[tuple[int, int], int] = {}
        self._checked: dict[int, list[int | None]] = {}

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Records appended since the last check are new, or equal to those elsewhere."""
        known, chains = self._checked.setdefault(touched.id, []), touched.chains
        if len(chains) != touched.log.end_offset:
            raise InvariantViolatedError(
                f"the log of {touched.id} ends at {touched.log.end_offset}, and its history at {len(chains)}"
            )
        if len(known) == len(chains) and (not chains or known[-1] == chains[-1]):
            return
        start = min(len(known), len(chains))
        while start and known[start - 1] != chains[start - 1]:
            start -= 1
        del known[start:]
        log_start = touched.log.start_offset
        for offset in range(start, len(chains)):
            chain = chains[offset]
            known.append(chain)
            if chain is None:
                continue  # below a snapshot's last record
            epoch = (
                touched.log.records[offset - log_start].epoch if offset >= log_start else touched.log.epoch_at(offset)
            )
            if self.chains.setdefault((offset, epoch), chain) != chain:
                raise InvariantViolatedError(f"{touched.id} has another record at offset {offset} of epoch {epoch}")
