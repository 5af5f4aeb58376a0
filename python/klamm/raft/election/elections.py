"""Campaigns: when a replica requests votes and when it grants them (KIP-595, KIP-996)."""

from klamm.raft.election.crash_detection import CrashDetection
from klamm.raft.election.role_states import NEVER_MS, Candidate, Follower, Prospective, Unattached
from klamm.raft.election.voting import can_grant_vote
from klamm.raft.messages import Error, VoteRequest, VoteResponse
from klamm.raft.replica_state import Replica
from klamm.raft.voters.voter_set import ReplicaKey


class Elections:
    """The part of a replica that campaigns and votes."""

    def __init__(self, replica: Replica, crashes: CrashDetection) -> None:
        self._replica, self._crashes = replica, crashes

    def campaign(self, now_ms: int) -> None:
        """Begin with a pre-vote. A sole voter has its majority at once, as Prospective and then as Candidate."""
        self._replica.become_prospective(now_ms)
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """Take the next step of a campaign that has a majority."""
        state = self._replica.state
        if isinstance(state, Prospective) and state.tally.is_won:
            self._replica.become_candidate(now_ms)
            state = self._replica.state
        if isinstance(state, Candidate) and state.tally.is_won:
            self._replica.become_leader(now_ms)

    def on_vote_request(self, now_ms: int, request_id: int, request: VoteRequest) -> None:
        """Grant or refuse a vote or a pre-vote."""
        replica = self._replica
        error = self._check(request)
        if error is not Error.NONE:
            return self._reply(request_id, error, granted=False)
        if request.epoch > replica.epoch:
            replica.become_unattached(now_ms, request.epoch)  # for pre-votes too (KIP-996)
        if not is_meant_for(replica, request.voter):
            return self._reply(request_id, Error.INVALID_VOTER_KEY, granted=False)
        granted = not replica.has_lost_records and can_grant_vote(
            replica.state,
            replica.election,
            request.candidate,
            log_is_up_to_date=request.log_end.is_up_to_date_with(replica.log_end),
            pre_vote=request.pre_vote,
            leader_is_gone=self._crashes.has_seen(now_ms) or self._is_leader_silent(now_ms),
        )
        if granted and not request.pre_vote and replica.election.voted is None:
            replica.add_vote(now_ms, request.candidate)
        self._reply(request_id, Error.NONE, granted=granted)
        is_rival = isinstance(replica.state, Prospective) and self._crashes.has_seen(now_ms)
        if granted and request.pre_vote and is_rival and request.candidate.id < replica.id:
            self._give_up_pre_vote(now_ms)  # two detected the same crash at once: one lets the other go first
        return None

    def _is_leader_silent(self, now_ms: int) -> bool:
        """Whether a fetch timeout has expired. A replica that is no voter in its own log may vote, not campaign."""
        state = self._replica.state
        return isinstance(state, Follower) and now_ms >= state.deadline_ms

    def on_vote_response(self, now_ms: int, voter_id: int, response: VoteResponse) -> None:
        """Count a response of this epoch."""
        state = self._replica.state
        if not isinstance(state, Prospective | Candidate):
            return
        state.tally.record(voter_id, response.granted)
        self.advance(now_ms)
        is_hopeless = self._crashes.is_hopeless(now_ms, state.tally)
        if isinstance(state, Prospective) and (state.tally.is_lost or is_hopeless):
            self._give_up_pre_vote(now_ms)
        elif is_hopeless:
            state.deadline_ms = min(state.deadline_ms, self._crashes.retry_at_ms(now_ms))

    def on_pre_vote_unsupported(self, now_ms: int) -> None:
        """A voter older than Kafka 4.0 does not support pre-votes: become Candidate without one (KIP-996)."""
        if isinstance(self._replica.state, Prospective):
            self._replica.become_candidate(now_ms)
            self.advance(now_ms)

    def tick_unattached(self, now_ms: int, state: Unattached) -> int:
        """Campaign when the timeout has passed; returns when to check again."""
        if self._replica.is_shutting_down:
            return NEVER_MS  # stays until another is elected or the driver's shutdown timeout ends
        if not self._replica.may_campaign:
            return NEVER_MS  # asked for a vote, which it gave, by one that takes it for a voter
        if now_ms < state.deadline_ms:
            return state.deadline_ms
        self.campaign(now_ms)
        return now_ms

    def tick_nominee(self, now_ms: int, state: Prospective | Candidate) -> int:
        """Ask the voters that have not answered; give up after the timeout. Returns when to check again."""
        deadline_ms = NEVER_MS if self._replica.is_shutting_down else state.deadline_ms
        if now_ms < deadline_ms:
            return self._ask(now_ms, state, deadline_ms)
        if isinstance(state, Prospective):
            self._give_up_pre_vote(now_ms)
        else:
            self.campaign(now_ms)
        return now_ms

    def _ask(self, now_ms: int, state: Prospective | Candidate, next_ms: int) -> int:
        replica = self._replica
        if state.tally.is_lost or (isinstance(state, Candidate) and not self._is_log_durable()):
            return next_ms
        for voter_id in sorted(state.tally.unanswered):
            if replica.requests.is_ready(now_ms, voter_id):
                replica.send(now_ms, voter_id, self._vote_request(voter_id, isinstance(state, Prospective)))
            next_ms = min(next_ms, replica.requests.ready_at_ms(voter_id))
        return next_ms

    def _is_log_durable(self) -> bool:
        """A vote is granted for this log, and cannot be withdrawn: the candidate must never ask with a shorter one."""
        log = self._replica.log
        return log.flushed_offset >= log.end_offset

    def _vote_request(self, voter_id: int, pre_vote: bool) -> VoteRequest:
        replica, voter = self._replica, self._replica.voters.get(voter_id)
        return VoteRequest(
            cluster_id=replica.identity.cluster_id,
            voter=voter.key if voter is not None else None,
            candidate=replica.key,
            epoch=replica.epoch,
            log_end=replica.log_end,
            pre_vote=pre_vote,
        )

    def _give_up_pre_vote(self, now_ms: int) -> None:
        replica, leader_id = self._replica, self._replica.leader_id
        if leader_id is not None and replica.knows_way_to(leader_id, replica.leader_endpoints):
            replica.become_follower(now_ms, replica.epoch, leader_id, replica.leader_endpoints)
        else:
            replica.become_unattached(now_ms, replica.epoch, leader_id)
        if self._crashes.has_seen(now_ms) and isinstance(replica.state, Follower | Unattached):
            replica.state.deadline_ms = min(replica.state.deadline_ms, self._crashes.retry_at_ms(now_ms))

    def _check(self, request: VoteRequest) -> Error:
        replica, log_end = self._replica, request.log_end
        if request.cluster_id not in (None, replica.identity.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID
        # A candidate raised its epoch and so has no record of it; a prospective may well have one.
        highest_epoch = request.epoch if request.pre_vote else request.epoch - 1
        if log_end.offset < 0 or log_end.epoch < 0 or log_end.epoch > highest_epoch:
            return Error.INVALID_REQUEST
        if request.epoch < replica.epoch:
            return Error.FENCED_LEADER_EPOCH
        if request.candidate.id < 0 or request.candidate.id == replica.id:
            return Error.INVALID_REQUEST
        return Error.NONE

    def _reply(self, request_id: int, error: Error, *, granted: bool) -> None:
        replica = self._replica
        response = VoteResponse(error, replica.epoch, replica.leader_id, granted, replica.leader_endpoints)
        replica.reply(request_id, response)


def is_meant_for(replica: Replica, voter: ReplicaKey | None) -> bool:
    """Whether the receiver named in a request is this replica (KIP-853); checked after the epoch was learned."""
    return voter is None or voter.matches(replica.key)
