"""A voter grants its vote to at most one candidate per epoch. Source: Raft 5.2; KIP-595 (votedId)."""

from klamm.raft.messages import VoteRequest, VoteResponse
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class OneVote:
    """Remembers every vote that a replica has sent, in all of its lives."""

    def __init__(self) -> None:
        self.votes: dict[tuple[ReplicaKey, int], int] = {}

    def check_messages(self, touched: SimulatedReplica) -> None:
        """At most one candidate gets a vote in an epoch."""
        for envelope in touched.outbox:
            request, response = envelope.request, envelope.response
            if not isinstance(request, VoteRequest) or request.pre_vote:
                continue
            if isinstance(response, VoteResponse) and response.granted:
                self._count(touched.key, request.epoch, envelope.target)
            elif response is None:
                self._count(touched.key, request.epoch, touched.id)  # a candidate has voted for itself

    def _count(self, voter: ReplicaKey, epoch: int, candidate_id: int) -> None:
        given = self.votes.setdefault((voter, epoch), candidate_id)
        if given != candidate_id:
            raise InvariantViolatedError(f"{voter.id} voted for {given} and {candidate_id} in epoch {epoch}")
