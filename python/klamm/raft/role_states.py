"""What a replica keeps in each role, beside its election state: a class a role."""

from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from klamm.raft.messages import FetchRequest
from klamm.raft.quorum import UNKNOWN_OFFSET, Tally
from klamm.raft.roles import Role
from klamm.raft.voters import ReplicaKey

NEVER_MS: Final = 1 << 62


@dataclass(slots=True, eq=False)
class Unattached:
    """Knows an epoch and no leader to fetch from; may have voted in it."""

    ROLE: ClassVar[Role] = Role.UNATTACHED
    deadline_ms: int  # then a voter becomes Prospective; never for an observer


@dataclass(slots=True, eq=False)
class Prospective:
    """Asks whether it would win before it disturbs anyone with a new epoch (KIP-996)."""

    ROLE: ClassVar[Role] = Role.PROSPECTIVE
    deadline_ms: int
    tally: Tally


@dataclass(slots=True, eq=False)
class Candidate:
    """Has voted for itself in a new epoch and asks for the other votes."""

    ROLE: ClassVar[Role] = Role.CANDIDATE
    deadline_ms: int
    tally: Tally


@dataclass(slots=True, eq=False)
class ReplicaProgress:
    """What the leader knows of one other replica. Times are the core's `now_ms`, `-1` while unknown."""

    key: ReplicaKey
    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = -1
    last_fetch_leader_end_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: int = -1

    def on_fetch(self, now_ms: int, fetch_offset: int, leader_end_offset: int) -> None:
        """Note a fetch: caught up now when it reaches the leader's end, or then when it reaches the end of then."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms >= 0 and fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end_offset = leader_end_offset


class ParkedFetch(NamedTuple):
    """A fetch that found nothing new and waits for an append, a higher high watermark, or its time."""

    request_id: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True, eq=False)
class Leader:
    """Leads the epoch.

    Invariants: 1. `high_watermark` is unknown or above `epoch_start_offset` (facts 2.8). 2. `voters` has an entry for
    each voter but this replica. 3. nothing is appended before the election is durable (`started`).
    """

    ROLE: ClassVar[Role] = Role.LEADER
    ticket: int  # of the election that made it leader
    epoch_start_offset: int
    granting: frozenset[int]
    voters: dict[int, ReplicaProgress]
    check_quorum_deadline_ms: int
    begin_epoch_due_ms: int
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)
    parked: dict[int, ParkedFetch] = field(default_factory=dict)
    high_watermark: int = UNKNOWN_OFFSET
    started: bool = False  # its LeaderChange record is in the log


@dataclass(slots=True, eq=False)
class Follower:
    """Fetches from the leader of its epoch."""

    ROLE: ClassVar[Role] = Role.FOLLOWER
    deadline_ms: int  # then a voter becomes Prospective
    has_fetched: bool = False  # from then on it grants no pre-vote (KIP-996)
    leader_high_watermark: int = UNKNOWN_OFFSET


@dataclass(slots=True, eq=False)
class Resigned:
    """Was the leader of this epoch, tells the voters so, and cannot vote or follow in it."""

    ROLE: ClassVar[Role] = Role.RESIGNED
    deadline_ms: int  # then it is Unattached in the next epoch
    unacknowledged: set[int]
    preferred_successors: tuple[ReplicaKey, ...]


RoleState = Unattached | Prospective | Candidate | Leader | Follower | Resigned
