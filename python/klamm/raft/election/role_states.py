"""The state of a replica in each role, besides its election state: a class per role.

Written out: a dataclass costs a millisecond each time a node starts.
"""

from __future__ import annotations

from typing import ClassVar, Final

from klamm.protocol.value import Value
from klamm.raft.election.roles import Role
from klamm.raft.log.metadata_log import OffsetAndEpoch
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    Error,
    FetchRequest,
    RemoveVoterRequest,
    RemoveVoterResponse,
)
from klamm.raft.voters.quorum import UNKNOWN_OFFSET, Tally
from klamm.raft.voters.voter_set import ReplicaKey, VoterSet

NEVER_MS: Final = 1 << 62


class Unattached:
    """Knows an epoch and no leader to fetch from; may have voted in it."""

    ROLE: ClassVar[Role] = Role.UNATTACHED
    __slots__ = ("deadline_ms",)

    def __init__(self, deadline_ms: int) -> None:
        """At the deadline a voter becomes Prospective; it is never for an observer."""
        self.deadline_ms = deadline_ms


class Prospective:
    """Asks for pre-votes, before it disrupts the quorum with a new epoch (KIP-996)."""

    ROLE: ClassVar[Role] = Role.PROSPECTIVE
    __slots__ = ("deadline_ms", "tally")

    def __init__(self, deadline_ms: int, tally: Tally) -> None:
        self.deadline_ms = deadline_ms
        self.tally = tally


class Candidate:
    """Has voted for itself in a new epoch and asks for the other votes."""

    ROLE: ClassVar[Role] = Role.CANDIDATE
    __slots__ = ("deadline_ms", "tally")

    def __init__(self, deadline_ms: int, tally: Tally) -> None:
        self.deadline_ms = deadline_ms
        self.tally = tally


class ReplicaProgress:
    """The leader's knowledge of another replica. Times are the core's `now_ms`, `-1` while unknown."""

    __slots__ = ("end_offset", "key", "last_caught_up_ms", "last_fetch_leader_end_offset", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = -1
        self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = -1

    def on_fetch(self, now_ms: int, fetch_offset: int, leader_end_offset: int) -> None:
        """Record a fetch.

        The replica is caught up now if it has reached the log end, or was at its previous fetch if it has reached the
        log end of that time.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms >= 0 and fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end_offset = leader_end_offset


class ParkedFetch(Value):
    """A fetch that found nothing new and waits for an append, a higher high watermark, or its time."""

    request_id: int
    request: FetchRequest
    deadline_ms: int


class VoterChange:
    """A voter that the leader is asked to add or to remove, from the request on until the record is committed."""

    __slots__ = ("deadline_ms", "offset", "request", "request_id")

    def __init__(self, request_id: int, request: AddVoterRequest | RemoveVoterRequest, deadline_ms: int) -> None:
        self.request_id: int | None = request_id  # None when it was answered already
        self.request = request
        self.deadline_ms = deadline_ms
        self.offset: int | None = None  # of its record, once that is in the log

    def answer(self, error: Error, message: str | None = None) -> AddVoterResponse | RemoveVoterResponse:
        """The response to this request."""
        is_add = isinstance(self.request, AddVoterRequest)
        return AddVoterResponse(error, message) if is_add else RemoveVoterResponse(error, message)


class Leader:
    """Leads the epoch.

    Invariants: 1. `high_watermark` is unknown or above `epoch_start_offset` (KIP-595). 2. `voters` has an entry for
    each voter but this replica. 3. nothing is appended before the election is durable (`started`).
    """

    ROLE: ClassVar[Role] = Role.LEADER
    __slots__ = (
        "begin_epoch_due_ms",
        "change",
        "check_quorum_deadline_ms",
        "epoch_start_offset",
        "fetched_voters",
        "granting",
        "high_watermark",
        "observers",
        "parked",
        "reported_voters",
        "started",
        "ticket",
        "voters",
    )

    def __init__(
        self,
        ticket: int,
        epoch_start_offset: int,
        granting: frozenset[int],
        voters: dict[int, ReplicaProgress],
        reported_voters: VoterSet,
        *,
        check_quorum_deadline_ms: int,
        begin_epoch_due_ms: int,
    ) -> None:
        self.ticket = ticket  # in the election that made it leader
        self.epoch_start_offset = epoch_start_offset
        self.granting = granting
        self.voters = voters
        self.reported_voters = reported_voters  # what static voters reported of themselves (kraft.version 0)
        self.change: VoterChange | None = None
        self.check_quorum_deadline_ms = check_quorum_deadline_ms
        self.begin_epoch_due_ms = begin_epoch_due_ms
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.fetched_voters: set[int] = set()
        self.parked: dict[int, ParkedFetch] = {}
        self.high_watermark = UNKNOWN_OFFSET
        self.started = False  # its LeaderChange record is in the log


class SnapshotFetch:
    """A snapshot on its way from the leader. Invariant: `position <= size`, once `size` is known (not 0)."""

    __slots__ = ("attempt", "id", "position", "size")

    def __init__(self, snapshot_id: OffsetAndEpoch, attempt: int) -> None:
        """`attempt` is never used again by this replica."""
        self.id = snapshot_id
        self.attempt = attempt
        self.position = 0  # how many bytes are here
        self.size = 0

    @property
    def is_whole(self) -> bool:
        """Whether the snapshot is complete, and is being checked."""
        return 0 < self.size == self.position


class Follower:
    """Fetches from the leader of its epoch."""

    ROLE: ClassVar[Role] = Role.FOLLOWER
    __slots__ = (
        "deadline_ms",
        "fetching",
        "goes_on_from_ms",
        "has_fetched",
        "has_updated_leader",
        "leader_high_watermark",
        "voter_due_ms",
    )

    def __init__(self, deadline_ms: int) -> None:
        """At the deadline a voter becomes Prospective."""
        self.deadline_ms = deadline_ms
        self.voter_due_ms = deadline_ms  # when it next checks whether the leader has its current endpoints (KIP-853)
        self.has_updated_leader = False
        self.has_fetched = False  # from then on it grants no pre-vote (KIP-996)
        self.leader_high_watermark = UNKNOWN_OFFSET
        self.fetching: SnapshotFetch | None = None  # instead of the log
        self.goes_on_from_ms = 0  # until then fetches are sent one by one, because a streamed one failed


class Resigned:
    """Was the leader of this epoch, notifies the voters of its resignation, and cannot vote or follow in this epoch."""

    ROLE: ClassVar[Role] = Role.RESIGNED
    __slots__ = ("deadline_ms", "heirs", "preferred_successors", "unacknowledged")

    def __init__(
        self,
        deadline_ms: int,
        unacknowledged: set[int],
        preferred_successors: tuple[ReplicaKey, ...],
        heirs: frozenset[int] | None = None,
    ) -> None:
        """At the deadline it is Unattached in the next epoch."""
        self.deadline_ms = deadline_ms
        self.unacknowledged = unacknowledged
        self.preferred_successors = preferred_successors
        self.heirs = heirs  # the voters known to have all of its log, whose votes it can get; None: unknown


RoleState = Unattached | Prospective | Candidate | Leader | Follower | Resigned
