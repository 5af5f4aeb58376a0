"""The one history of what was ever known to be committed. Two checks share it: they must see it grow alike."""

from klamm.testing.simulator.replica import SimulatedReplica


class CommittedHistory:
    """The chain at each committed offset, in the order in which any replica learned of it."""

    def __init__(self) -> None:
        self.chains: list[int] = []

    def extend(self, replica: SimulatedReplica) -> None:
        """Add what this replica knows beyond the history."""
        self.chains.extend(replica.chains[len(self.chains) : max(replica.high_watermark, 0)])

    def agrees_with(self, replica: SimulatedReplica, offset: int) -> bool:
        """Whether that replica's log below `offset` is the history's."""
        return offset == 0 or (len(replica.chains) >= offset and replica.chains[offset - 1] == self.chains[offset - 1])
