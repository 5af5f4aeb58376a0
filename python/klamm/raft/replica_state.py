"""The state of one replica and the checked transitions between its roles (`QuorumState`).

`node.RaftNode` connects it to events. The inputs of a transition (the time, the rng, the log's end) are passed in; its
outputs are appended to `effects`.
"""

from typing import Final

from klamm.raft.config import Identity, RaftConfig
from klamm.raft.effects import (
    BecameLeader,
    DropSnapshot,
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    LostLeadership,
    PersistElection,
    Reply,
    SendRequest,
)
from klamm.raft.election.election_state import ElectionState
from klamm.raft.election.role_states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    ParkedFetch,
    Prospective,
    ReplicaProgress,
    Resigned,
    RoleState,
    Unattached,
)
from klamm.raft.election.roles import NEXT_ROLES, OBSERVER_ROLES, START_ROLES, Role
from klamm.raft.log.metadata_log import LogView, OffsetAndEpoch, durable_end
from klamm.raft.messages import Error, FetchResponse, Request, Response
from klamm.raft.replication.requests import Requests
from klamm.raft.rng import Rng
from klamm.raft.voters.quorum import UNKNOWN_OFFSET, Tally
from klamm.raft.voters.voter_history import VoterHistory
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog

# Check quorum (KIP-595, KAFKA-15489): the leader waits longer than a follower, so that fetches in flight still count.
CHECK_QUORUM_FACTOR: Final = 1.5
EPOCH_MAX: Final = 2**31 - 1  # an int32 on the wire and on disk
DOUBLINGS_MAX: Final = 16  # of an election time-out, from 1 ms to more than any wants


class InvariantError(Exception):
    """An invariant of the protocol is violated here: the replica must stop rather than continue."""


class Replica:
    """Election state, role state and outbox of one replica.

    Invariants: 1. the epoch never falls. 2. in one epoch at most one leader and one vote are ever recorded.
    3. `high_watermark` never falls. 4. `state` changes only along NEXT_ROLES. `enter` checks 1, 2 and 4.
    """

    def __init__(self, identity: Identity, voters: VotersInLog, config: RaftConfig, log: LogView, seed: int) -> None:
        self.identity = identity
        self.voter_history = VoterHistory(voters)
        self.voter_history.follow(log)
        self.config = config
        self.log = log
        self.requests = Requests(config)
        self.effects: list[Effect] = []
        self.state: RoleState = Unattached(NEVER_MS)  # until `start`
        self.election = ElectionState()
        self.leader_endpoints: tuple[Endpoint, ...] = ()
        self.high_watermark = UNKNOWN_OFFSET
        self.ticket = 0  # the newest election state handed out
        self.durable_ticket = 0  # the newest that is on disk
        self.snapshot_attempts = 0  # how many snapshots it has begun to fetch
        self.is_shutting_down = False
        self._campaigns = 0  # that were begun since a leader was known
        self._rng = Rng(seed)
        self._stored = ElectionState()  # what `ticket` carried; no file says as much
        self._announced_leader: tuple[int | None, int] = (None, 0)
        self._looked_up: tuple[VoterSet | None, bool] = (None, False)  # whether it is a voter of that set
        self._has_all_records = False  # stays so, once it is

    # Its knowledge

    @property
    def key(self) -> ReplicaKey:
        """This replica."""
        return self.identity.key

    @property
    def id(self) -> int:
        """This replica's node id."""
        return self.identity.key.id

    @property
    def voters_in_log(self) -> VotersInLog:
        """The voter set in force, with its place and the kraft.version."""
        return self.voter_history.newest

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self.voters_in_log.voters

    @property
    def epoch(self) -> int:
        """The highest epoch this replica knows of."""
        return self.election.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of `epoch`, where it is known; this replica itself while Leader and Resigned."""
        return self.election.leader_id

    @property
    def role(self) -> Role:
        """The role it is in."""
        return self.state.ROLE

    @property
    def is_voter(self) -> bool:
        """Whether it counts in elections and for the high watermark."""
        voters = self.voters_in_log.voters
        if voters is not self._looked_up[0]:
            self._looked_up = voters, voters.is_voter(self.identity.key)
        return self._looked_up[1]

    @property
    def has_lost_records(self) -> bool:
        """Whether its log ends before records that it is known to have stored, and may have acknowledged.

        Until it has fetched as many again, or a record of a later leader, whose log has all committed records, it
        neither votes nor campaigns: a majority with it could elect a leader that lacks a committed record.
        """
        if not self._has_all_records:
            self._has_all_records = durable_end(self.log).is_up_to_date_with(self.log.proven_end)
        return not self._has_all_records

    @property
    def may_campaign(self) -> bool:
        """Whether it takes part in elections: a voter, or a replica whose removal is in its log and not known as
        committed.

        A replica that has lost records does not take part. Without one whose removal may not be committed, no other may
        be electable, because this log is longer (Ongaro's dissertation, 4.2.2). It is not among the current voters, so
        its own vote does not count.
        """
        if self.has_lost_records:
            return False
        if self.is_voter:
            return True
        known = self.voters_in_log
        if known.offset is None or known.offset < max(self.high_watermark, 0):
            return False
        return self.voter_history.below(known.offset).voters.is_voter(self.key)

    @property
    def own_voter(self) -> Voter:
        """The entry that this replica should have among the voters."""
        return Voter(self.key, self.identity.endpoints or self.voters.endpoints(self.id))

    @property
    def log_end(self) -> OffsetAndEpoch:
        """Where its log ends, flushed or not."""
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    def knows_way_to(self, node_id: int, endpoints: tuple[Endpoint, ...]) -> bool:
        """Whether requests can be sent to that node."""
        return bool(endpoints) or self.voters.get(node_id) is not None

    def below(self, bound: int) -> int:
        """A number in `[0, bound)` from this replica's generator."""
        return self._rng.below(bound)

    def draw_election_deadline_ms(self, now_ms: int) -> int:
        """A deadline one to two election timeouts away, so that voters seldom campaign at the same time (Raft 5.2).

        A timeout that is too short for the environment would never end with a leader: it doubles with each campaign
        since the last known leader, up to `election_backoff_max_ms`. With Kafka's defaults both are a second, so it
        never grows.
        """
        short_ms, longest_ms = self.config.election_timeout_ms, self.config.election_backoff_max_ms
        timeout_ms = max(short_ms, min(short_ms << min(self._campaigns, DOUBLINGS_MAX), longest_ms))
        return now_ms + timeout_ms + self._rng.below(timeout_ms)

    # Its messages

    def send(
        self,
        now_ms: int,
        to: int,
        request: Request,
        endpoints: tuple[Endpoint, ...] = (),
        *,
        may_stream: bool = False,
    ) -> None:
        """Send a request to a peer that is ready, once this replica's election state is durable."""
        correlation_id = self.requests.begin(now_ms, to, request, may_stream=may_stream)
        where = endpoints or self.voters.endpoints(to)
        self.effects.append(SendRequest(to, where, correlation_id, request, after=self.ticket, may_stream=may_stream))

    def reply(self, request_id: int, response: Response) -> None:
        """Answer once this replica's election state is durable: a repeated request must not overtake the fsync."""
        self.effects.append(Reply(request_id, response, after=self.ticket))

    def fetch_error(self, error: Error) -> FetchResponse:
        """An answer to a fetch without data."""
        return FetchResponse(error, self.epoch, self.leader_id, leader_endpoints=self.leader_endpoints)

    def advance_high_watermark(self, offset: int) -> None:
        """Record a higher high watermark."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.effects.append(HighWatermarkAdvanced(offset))

    # How it changes

    def start(self, stored: ElectionState | None, state: RoleState, election: ElectionState) -> None:
        """Take the initial role (`QuorumState.initialize`)."""
        if state.ROLE not in START_ROLES:
            raise InvariantError(f"replica {self.id} cannot start as {state.ROLE.value}")
        self._stored = stored or ElectionState()
        self.leader_endpoints = self._endpoints_of(election.leader_id)
        self._adopt(state, election)
        self._maybe_announce_leader()

    def become_unattached(self, now_ms: int, epoch: int, leader_id: int | None = None) -> None:
        """Enter an epoch without a leader to fetch from. The rest of an election timeout keeps running."""
        same_epoch = epoch == self.epoch
        if same_epoch and self.role is not Role.PROSPECTIVE:
            raise InvariantError(f"{self.role.value} cannot become Unattached within epoch {epoch}")
        deadline_ms = self._remaining_or_fresh_deadline_ms(now_ms) if self.may_campaign else NEVER_MS
        voted = self.election.voted if same_epoch else None
        self.leader_endpoints = ()
        self.enter(Unattached(deadline_ms), ElectionState(epoch, leader_id, voted))

    def become_follower(self, now_ms: int, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Fetch from the leader of an epoch; a vote of that epoch is kept."""
        if leader_id == self.id:
            raise InvariantError(f"replica {self.id} cannot follow itself in epoch {epoch}")
        voted = self.election.voted if epoch == self.epoch else None
        self.leader_endpoints = endpoints or self._endpoints_of(leader_id)
        deadline_ms = now_ms + self.config.fetch_timeout_ms
        self.enter(Follower(deadline_ms), ElectionState(epoch, leader_id, voted))
        self._campaigns = 0

    def become_prospective(self, now_ms: int) -> None:
        """Begin a campaign with a pre-vote; leader and vote of the epoch are kept."""
        state = Prospective(self.draw_election_deadline_ms(now_ms), self.new_tally())
        self.enter(state, self.election)
        self._campaigns += 1

    def become_candidate(self, now_ms: int) -> None:
        """Vote for itself in the next epoch."""
        if not isinstance(self.state, Prospective):
            raise InvariantError(f"{self.role.value} cannot become Candidate")
        self.leader_endpoints = ()
        state = Candidate(self.draw_election_deadline_ms(now_ms), self.new_tally())
        self.enter(state, ElectionState(self.epoch + 1, None, self.key))

    def become_leader(self, now_ms: int) -> None:
        """Lead the epoch that a majority granted."""
        if not isinstance(self.state, Candidate) or not self.state.tally.is_won:
            raise InvariantError(f"{self.role.value} cannot become Leader of epoch {self.epoch} without a majority")
        check_quorum_ms = int(self.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        others = [voter.key for voter in self.voters.voters if voter.key.id != self.id]
        state = Leader(
            ticket=self.ticket + 1,
            epoch_start_offset=self.log.end_offset,
            granting=frozenset(self.state.tally.granted),
            voters={key.id: ReplicaProgress(key) for key in others},
            reported_voters=self.voters.with_voter(self.own_voter),
            check_quorum_deadline_ms=now_ms + check_quorum_ms if others else NEVER_MS,
            begin_epoch_due_ms=now_ms if others else NEVER_MS,
        )
        self.leader_endpoints = self.identity.endpoints
        self.enter(state, ElectionState(self.epoch, self.id, None))
        self._campaigns = 0
        if self.ticket != state.ticket:
            raise InvariantError(f"the election of epoch {self.epoch} was not handed out to be made durable")

    def become_resigned(self, now_ms: int) -> None:
        """Stop leading, keep the epoch: nothing more is appended in it by any replica."""
        if not isinstance(self.state, Leader):
            raise InvariantError(f"{self.role.value} cannot resign")
        by_progress = sorted(self.state.voters.values(), key=lambda p: (-p.end_offset, p.key.id))
        successors = tuple(progress.key for progress in by_progress)
        heirs = frozenset(progress.key.id for progress in by_progress if progress.end_offset >= self.log.end_offset)
        state = Resigned(self.draw_election_deadline_ms(now_ms), set(self.state.voters), successors, heirs)
        self.enter(state, self.election)

    def add_vote(self, now_ms: int, candidate: ReplicaKey) -> None:
        """Give this epoch's only vote to another replica, and restart the election timeout for its campaign."""
        if self.election.voted is not None or candidate.id == self.id:
            raise InvariantError(f"epoch {self.epoch} has the vote {self.election.voted}, cannot add {candidate}")
        deadline_ms = self.draw_election_deadline_ms(now_ms)
        pre_vote_again = isinstance(self.state, Prospective)
        state = Prospective(deadline_ms, self.new_tally()) if pre_vote_again else Unattached(deadline_ms)
        self.enter(state, ElectionState(self.epoch, self.election.leader_id, candidate))

    def announce_leadership(self) -> None:
        """Announce that this replica leads: its first record, and so everything before it, is committed."""
        self._announced_leader = (self.id, self.epoch)
        self.effects.append(BecameLeader(self.epoch))

    # How a step is taken

    def enter(self, state: RoleState, election: ElectionState) -> None:
        """Take a role and its election together. Raises InvariantError for a step that the tables do not have."""
        before, known = self.state, self.election
        if state.ROLE not in NEXT_ROLES[before.ROLE]:
            raise InvariantError(f"{before.ROLE.value} cannot become {state.ROLE.value} (epoch {election.epoch})")
        is_removed = before.ROLE is Role.LEADER and state.ROLE is Role.RESIGNED  # it led until that was committed
        if not self.may_campaign and state.ROLE not in OBSERVER_ROLES and not is_removed:
            raise InvariantError(f"replica {self.id} is no voter and cannot become {state.ROLE.value}")
        if election.epoch > EPOCH_MAX:
            raise InvariantError(f"epoch {known.epoch} is the last that there is: the quorum must be formatted again")
        if election.epoch < known.epoch:
            raise InvariantError(f"the epoch would fall from {known.epoch} to {election.epoch}")
        if election.epoch == known.epoch and known.leader_id not in (None, election.leader_id):
            raise InvariantError(f"epoch {known.epoch} has leader {known.leader_id}, not {election.leader_id}")
        self.requests.reset()
        self._adopt(state, election)
        if isinstance(before, Leader):
            self._end_leadership(before, known.epoch)
        if isinstance(before, Follower) and before.fetching is not None:
            self.effects.append(DropSnapshot())  # another leader's file of the same id may differ byte for byte
        self._maybe_announce_leader()

    def _adopt(self, state: RoleState, election: ElectionState) -> None:
        self.state, self.election = state, election
        if election != self._stored:
            self._stored = election
            self.ticket += 1
            kraft_version = self.voters_in_log.kraft_version
            self.effects.append(PersistElection(self.ticket, election, kraft_version, self.voters.ids))

    def _end_leadership(self, leader: Leader, epoch: int) -> None:
        for parked in leader.parked.values():
            self._refuse_parked(parked)
        if leader.change is not None and leader.change.request_id is not None:
            self.reply(leader.change.request_id, leader.change.answer(Error.NOT_LEADER_OR_FOLLOWER))
        if self._announced_leader == (self.id, epoch):
            self.effects.append(LostLeadership(epoch))

    def _refuse_parked(self, parked: ParkedFetch) -> None:
        self.reply(parked.request_id, self.fetch_error(Error.NOT_LEADER_OR_FOLLOWER))

    def _maybe_announce_leader(self) -> None:
        """Announce another replica's leadership at once. `BecameLeader` announces its own, except while it resigns."""
        leader = (self.leader_id, self.epoch)
        if leader != self._announced_leader and self.leader_id != self.id:
            self._announced_leader = leader
            self.effects.append(LeaderChanged(*leader))

    def _remaining_or_fresh_deadline_ms(self, now_ms: int) -> int:
        state = self.state
        lost_pre_vote = isinstance(state, Prospective) and state.tally.is_lost
        if isinstance(state, Leader | Follower) or lost_pre_vote:
            return self.draw_election_deadline_ms(now_ms)
        return state.deadline_ms

    def new_tally(self) -> Tally:
        """The votes among the voters in force, its own given to itself if it is one."""
        return Tally(frozenset(self.voters.ids), granted={self.id} if self.is_voter else ())

    def _endpoints_of(self, node_id: int | None) -> tuple[Endpoint, ...]:
        return () if node_id is None else self.voters.endpoints(node_id)
