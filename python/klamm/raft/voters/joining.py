"""A follower's requests to its leader besides fetches: to become a voter or update its entry (KIP-853, KIP-1186)."""

from klamm.raft.election.role_states import Follower
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    Error,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from klamm.raft.replica_state import Replica

# The leader did it, or cannot now: check again after the usual time.
_SETTLED = frozenset({Error.NONE, Error.REQUEST_TIMED_OUT, Error.DUPLICATE_VOTER, Error.VOTER_NOT_FOUND})


class Joining:
    """The part of a follower that maintains its own entry in the voter set."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def next_request(
        self, now_ms: int, state: Follower
    ) -> UpdateVoterRequest | AddVoterRequest | RemoveVoterRequest | None:
        """The request due at this time instead of a fetch; checked again a fetch timeout later."""
        if now_ms < state.voter_due_ms:
            return None
        state.voter_due_ms = now_ms + self._replica.config.fetch_timeout_ms
        return self._update_request(state) if self._replica.is_voter else self._join_request()

    def on_changed(self, response: AddVoterResponse | RemoveVoterResponse) -> bool:
        """Process the leader's response; False if the next request to it is delayed."""
        return response.error in _SETTLED

    def on_updated(self, now_ms: int, response: UpdateVoterResponse) -> bool:
        """The leader knows where this voter listens: as good as an answered fetch."""
        state = self._replica.state
        if response.error not in (Error.NONE, Error.UNSUPPORTED_VERSION):
            return False
        if isinstance(state, Follower):
            state.has_updated_leader = state.has_fetched = True
            state.deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        return True

    def _update_request(self, state: Follower) -> UpdateVoterRequest | None:
        """With kraft.version 0 the voter sends this once to each new leader, because the log does not store it."""
        replica, known = self._replica, self._replica.voters_in_log
        if not replica.identity.endpoints or replica.key.directory_id is None:
            return None
        is_known = state.has_updated_leader if known.kraft_version == 0 else self._is_as_recorded()
        if is_known:
            return None
        return UpdateVoterRequest(replica.identity.cluster_id, replica.epoch, replica.key, replica.identity.endpoints)

    def _is_as_recorded(self) -> bool:
        return self._replica.voters.get(self._replica.id) == self._replica.own_voter

    def _join_request(self) -> AddVoterRequest | RemoveVoterRequest | None:
        """Auto-join: first remove this node's entry with another directory id, then add this one."""
        replica, known = self._replica, self._replica.voters_in_log
        if not replica.config.auto_join or known.kraft_version == 0:
            return None
        cluster_id, old = replica.identity.cluster_id, known.voters.get(replica.id)
        if old is not None:
            return RemoveVoterRequest(cluster_id, old.key)
        timeout_ms = replica.config.request_timeout_ms
        return AddVoterRequest(cluster_id, replica.key, replica.identity.endpoints, False, timeout_ms)
