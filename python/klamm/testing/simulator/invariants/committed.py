"""The single history of all committed records. Two checks share it."""

from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class CommittedHistory:
    """The chain and value of each committed offset, in the order in which the first replica knew them."""

    def __init__(self) -> None:
        self.chains: list[int] = []
        self.values: list[bytes] = []
        self.kinds: list[int] = []  # control types, or DATA
        self.epochs: list[int] = []  # ascending

    def extend(self, replica: SimulatedReplica) -> None:
        """Add the committed records that this replica knows beyond the history."""
        start, log = replica.log.start_offset, replica.log
        for offset in range(len(self.chains), replica.reported_high_watermark):
            chain = replica.chains[offset]
            if chain is None or offset < start:
                raise InvariantViolatedError(
                    f"{replica.id} has a snapshot above offset {offset}, which is not committed"
                )
            self.chains.append(chain)
            self.values.append(log.records[offset - start].value)
            self.kinds.append(log.records[offset - start].type)
            self.epochs.append(log.records[offset - start].epoch)

    def agrees_with(self, replica: SimulatedReplica, offset: int) -> bool:
        """Whether that replica's log is equal to the history below `offset`."""
        return self.is_in(replica.chains, offset)

    def is_in(self, chains: list[int | None], offset: int) -> bool:
        """Whether a log with these chains is equal to the history below `offset`."""
        return offset == 0 or (len(chains) >= offset and chains[offset - 1] == self.chains[offset - 1])
