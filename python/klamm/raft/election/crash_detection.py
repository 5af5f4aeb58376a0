"""Evidence of a crash: if a process is killed on a running host, connections to it are refused at once.

A follower campaigns at once when the connection to its leader was closed and a new one refused. Timeouts stay in
effect. The campaign starts with a pre-vote as usual (KIP-996), so a false alarm costs two messages: voters that still
receive the leader's responses refuse it, and voters that saw the same failure grant it. A follower that was refused, or
met another campaign, retries after a short pause until the fetch timeout would have expired. After that only the
timeout counts.
"""

from __future__ import annotations

from typing import Final

from klamm.protocol.value import Value
from klamm.raft.election.role_states import Follower, Prospective, Resigned
from klamm.raft.replica_state import Replica
from klamm.raft.voters.quorum import Tally, majority_size

RETRY_MIN_MS: Final = 10
RETRY_MAX_MS: Final = 50


class FailedLeader(Value):
    """The leader of an epoch, and until when its detected crash counts."""

    node_id: int
    epoch: int
    until_ms: int


class CrashDetection:
    """Evidence that the leader of a replica crashed."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._crashed: FailedLeader | None = None
        self._refusing: set[int] = set()

    def on_refused(self, node_id: int) -> None:
        """The node refused a connection: nothing listens at its endpoint."""
        self._refusing.add(node_id)

    def has_no_majority(self) -> bool:
        """Whether the voters that do not refuse connections, including this replica, are less than a majority."""
        voters = self._replica.voters.ids
        is_wanted = self._replica.config.crash_detection
        return is_wanted and len(set(voters) - self._refusing) < majority_size(len(voters))

    def has_no_successor(self) -> bool:
        """Whether this replica, which has resigned, blocks every election.

        No candidate wins without its vote, and none can get it: its log is longer than theirs, and it no longer serves
        fetches.
        """
        state, voters = self._replica.state, self._replica.voters.ids
        if not isinstance(state, Resigned) or state.heirs is None or not self._replica.config.crash_detection:
            return False
        others = set(voters) - self._refusing - {self._replica.id}
        return len(others) < majority_size(len(voters)) and not others & state.heirs

    def on_peer_crashed(self, now_ms: int, node_id: int) -> None:
        """A node's connection closed, and a new one was refused."""
        self.on_refused(node_id)
        replica, state = self._replica, self._replica.state
        is_leader = replica.leader_id == node_id and isinstance(state, Follower | Prospective)
        if not is_leader or not replica.is_voter or not replica.config.crash_detection:
            return
        self._crashed = FailedLeader(node_id, replica.epoch, now_ms + replica.config.fetch_timeout_ms)
        if isinstance(state, Follower):
            # All replicas notice at the same time: one campaigns first, so that the others can vote for it.
            is_first = replica.id == min(voter_id for voter_id in replica.voters.ids if voter_id != node_id)
            state.deadline_ms = min(state.deadline_ms, now_ms if is_first else self.retry_at_ms(now_ms))

    def on_sign_of_life(self, node_id: int) -> None:
        """That node sent a message."""
        self._refusing.discard(node_id)
        if self._crashed is not None and self._crashed.node_id == node_id:
            self._crashed = None

    def on_reached_by(self, node_id: int) -> None:
        """That node sent a request: it listens, although it may have been down."""
        self._refusing.discard(node_id)

    def has_seen(self, now_ms: int) -> bool:
        """Whether a crash was detected of the leader that this replica follows, or campaigns to replace."""
        replica, crashed = self._replica, self._crashed
        if crashed is None or now_ms >= crashed.until_ms:
            return False
        if replica.epoch == crashed.epoch:
            return replica.leader_id == crashed.node_id
        # Its own campaign raised the epoch; one that another raised is another's to lead.
        return replica.leader_id is None and replica.election.voted == replica.key

    def is_hopeless(self, now_ms: int, tally: Tally) -> bool:
        """Whether only the vote of the crashed leader could still win."""
        if self._crashed is None or not self.has_seen(now_ms):
            return False
        return len(tally.voters - tally.rejected - {self._crashed.node_id}) < majority_size(len(tally.voters))

    def retry_at_ms(self, now_ms: int) -> int:
        """When to retry."""
        return now_ms + RETRY_MIN_MS + self._replica.below(RETRY_MAX_MS - RETRY_MIN_MS + 1)
