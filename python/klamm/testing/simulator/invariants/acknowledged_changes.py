"""A voter change that was acknowledged as committed is committed permanently. Source: KIP-853 (AddRaftVoter).

Each response without an error corresponds to one record of the committed history, which never changes. An addition
without `ack_when_committed` is acknowledged after it is appended.
"""

from collections import Counter

from klamm.raft.log.control_records import KRAFT_VOTERS, decode_voters
from klamm.raft.messages import AddVoterRequest, AddVoterResponse, Error, RemoveVoterRequest, RemoveVoterResponse
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class AcknowledgedChanges:
    """Counts committed and acknowledged additions and removals."""

    def __init__(self, history: CommittedHistory) -> None:
        self.history = history
        self._added: Counter[ReplicaKey] = Counter()
        self._removed: Counter[int] = Counter()
        self._acknowledged_added: Counter[ReplicaKey] = Counter()
        self._acknowledged_removed: Counter[int] = Counter()
        self._voters: VoterSet | None = None
        self._read = 0  # how much of the history was counted

    def check_messages(self, touched: SimulatedReplica) -> None:
        """No more is acknowledged than was committed."""
        for envelope in touched.outbox:
            if isinstance(envelope.response, AddVoterResponse | RemoveVoterResponse):
                self._count_committed()
                self._check(touched, envelope)

    def _check(self, touched: SimulatedReplica, envelope: Envelope) -> None:
        request, response = envelope.request, envelope.response
        if getattr(response, "error", None) is not Error.NONE:
            return
        if isinstance(request, AddVoterRequest) and request.ack_when_committed:
            self._acknowledged_added[request.voter] += 1
            if self._acknowledged_added[request.voter] > self._added[request.voter]:
                raise InvariantViolatedError(
                    f"{touched.id} acknowledged voter {request.voter.id}, which is not committed"
                )
        if isinstance(request, RemoveVoterRequest):
            self._acknowledged_removed[request.voter.id] += 1
            if self._acknowledged_removed[request.voter.id] > self._removed[request.voter.id]:
                raise InvariantViolatedError(
                    f"{touched.id} acknowledged the removal of voter {request.voter.id}, which is not committed"
                )

    def _count_committed(self) -> None:
        history = self.history
        for offset in range(self._read, len(history.kinds)):
            if history.kinds[offset] == KRAFT_VOTERS:
                self._count(decode_voters(history.values[offset]))
        self._read = len(history.kinds)

    def _count(self, voters: VoterSet) -> None:
        before = self._voters if self._voters is not None else VoterSet(())
        old, new = {voter.key for voter in before.voters}, {voter.key for voter in voters.voters}
        self._added.update(new - old)
        self._removed.update(key.id for key in old - new)
        self._voters = voters
