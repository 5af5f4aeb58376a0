"""What a replica sends is durable. Source: KIP-595 (quorum-state); Raft, figure 2, persistent state.

An epoch that it sends is not above the stored one. A vote that it grants, or casts for itself in a campaign, is the
stored one. A fetch acknowledges only flushed records.
"""

from klamm.raft.messages import FetchRequest, VoteRequest, VoteResponse
from klamm.raft.voters.voter_set import ReplicaKey
from klamm.testing.simulator.envelope import Envelope
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class SentIsDurable:
    """Compares each message with the disk when the driver sends it."""

    def check_messages(self, touched: SimulatedReplica) -> None:
        """Everything that it sent is durable."""
        for envelope in touched.sent:
            _check_epoch(touched, envelope)
            _check_vote(touched, envelope)
            _check_acknowledgement(touched, envelope)


def _check_epoch(touched: SimulatedReplica, envelope: Envelope) -> None:
    sent = getattr(envelope.response or envelope.request, "epoch", 0)  # only some messages of voter changes have one
    stored = touched.stored
    epoch = stored.epoch if stored is not None else 0
    if sent > epoch:
        raise InvariantViolatedError(f"{touched.id} sent epoch {sent}, and its quorum-state holds epoch {epoch}")


def _check_vote(touched: SimulatedReplica, envelope: Envelope) -> None:
    request, response = envelope.request, envelope.response
    if not isinstance(request, VoteRequest) or request.pre_vote:
        return
    if response is not None and not (isinstance(response, VoteResponse) and response.granted):
        return
    candidate = touched.key if response is None else request.candidate
    if not _holds_vote(touched, request.epoch, candidate):
        raise InvariantViolatedError(
            f"{touched.id} has voted for {candidate.id} in epoch {request.epoch}, and its quorum-state holds "
            f"{touched.stored}"
        )


def _holds_vote(touched: SimulatedReplica, epoch: int, candidate: ReplicaKey) -> bool:
    """A newer epoch, or a known leader of this one, rules out a vote."""
    stored = touched.stored
    if stored is None or stored.epoch < epoch:
        return False
    if stored.epoch > epoch or stored.leader_id is not None:
        return True
    return stored.voted is not None and stored.voted.matches(candidate)


def _check_acknowledgement(touched: SimulatedReplica, envelope: Envelope) -> None:
    request = envelope.request
    if envelope.response is not None or not isinstance(request, FetchRequest) or touched.config.never_votes:
        return
    if request.fetch_offset > touched.log.flushed_offset:
        raise InvariantViolatedError(
            f"{touched.id} fetches from {request.fetch_offset} on, and has flushed {touched.log.flushed_offset}"
        )
