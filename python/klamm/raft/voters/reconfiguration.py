"""The leader's part in changes of the voter set: one at a time, in force when appended (KIP-853)."""

from __future__ import annotations

from typing import Final

from klamm.protocol.value import Value
from klamm.raft.effects import AppendControl
from klamm.raft.election.role_states import NEVER_MS, Leader, VoterChange
from klamm.raft.log.control_records import KRAFT_VERSION, KRAFT_VOTERS, encode_kraft_version, encode_voters
from klamm.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Error,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from klamm.raft.replica_state import CHECK_QUORUM_FACTOR, Replica
from klamm.raft.replication.leading import Leading
from klamm.raft.voters.quorum import UNKNOWN_OFFSET, majority_size
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet

# A replica that has not fetched for this long no longer counts as caught up (`AddVoterHandler`).
CAUGHT_UP_MS_MAX: Final = 3_600_000
_NO_ANSWER: Final = "the new voter did not answer in time: nothing was changed"


class Refusal(Value):
    """Why a change is rejected."""

    error: Error
    message: str | None = None


class Reconfiguration:
    """Adds, removes and updates voters. Another leader may undo a change that is appended and not committed."""

    def __init__(self, replica: Replica, leading: Leading) -> None:
        self._replica = replica
        self._leading = leading

    # Requests

    def on_add(self, now_ms: int, request_id: int, request: AddVoterRequest) -> None:
        """Ask the new voter for its versions first; it is added when it answers."""
        state = self._replica.state
        refusal = self._check_add(now_ms, request)
        if refusal is not None or not isinstance(state, Leader):
            refusal = refusal or Refusal(Error.NOT_LEADER_OR_FOLLOWER)
            self._replica.reply(request_id, AddVoterResponse(refusal.error, refusal.message))
            return
        deadline_ms = now_ms + self._replica.config.request_timeout_ms
        state.change = VoterChange(request_id, request, deadline_ms)
        self._replica.send(now_ms, request.voter.id, ApiVersionsRequest(), request.endpoints)

    def on_remove(self, now_ms: int, request_id: int, request: RemoveVoterRequest) -> None:
        """Append the smaller set; the answer waits for its commit."""
        replica, state = self._replica, self._replica.state
        refusal = self._check_remove(now_ms, request)
        if refusal is not None or not isinstance(state, Leader):
            refusal = refusal or Refusal(Error.NOT_LEADER_OR_FOLLOWER)
            replica.reply(request_id, RemoveVoterResponse(refusal.error, refusal.message))
            return
        state.change = VoterChange(request_id, request, now_ms + replica.config.request_timeout_ms)
        state.change.offset = self._append(replica.voters.without(request.voter.id))

    def on_update(self, now_ms: int, request_id: int, request: UpdateVoterRequest) -> None:
        """Process a voter's own entry; answered once appended, or with kraft.version 0 once remembered."""
        replica, state = self._replica, self._replica.state
        error = self._check_update(request)
        if error is Error.NONE and isinstance(state, Leader):
            error = self._update(now_ms, state, request)
        response = UpdateVoterResponse(error, replica.epoch, replica.leader_id, replica.leader_endpoints)
        replica.reply(request_id, response)

    # The new voter's response

    def on_api_versions(self, now_ms: int, node_id: int, response: ApiVersionsResponse) -> None:
        """Add the voter, if it supports the kraft.version and keeps up."""
        state, asking = self._replica.state, self._asking_for(node_id)
        if not isinstance(state, Leader) or asking is None:
            return
        change, asked = asking
        refusal = self._check_new_voter(now_ms, state, asked.voter, response)
        if refusal is not None:
            self._finish(state, refusal.error, refusal.message)
            return
        low, high = response.kraft_versions or (0, 0)
        change.offset = self._append(self._replica.voters.with_voter(Voter(asked.voter, asked.endpoints, low, high)))
        if not asked.ack_when_committed and change.request_id is not None:
            self._replica.reply(change.request_id, change.answer(Error.NONE))
            change.request_id = None

    def on_api_versions_failed(self, node_id: int) -> None:
        """The request to the new voter failed."""
        state = self._replica.state
        if isinstance(state, Leader) and self._asking_for(node_id) is not None:
            text = f"node {node_id} could not be asked for its versions at the endpoints given"
            self._finish(state, Error.REQUEST_TIMED_OUT, text)

    def _asking_for(self, node_id: int) -> tuple[VoterChange, AddVoterRequest] | None:
        """The change that waits for that node's response to this request, not to an earlier one."""
        state = self._replica.state
        change = state.change if isinstance(state, Leader) else None
        if change is None or change.offset is not None or not isinstance(change.request, AddVoterRequest):
            return None
        return (change, change.request) if change.request.voter.id == node_id else None

    # Time

    def tick(self, now_ms: int, state: Leader) -> int:
        """Answer committed and timed-out changes; a leader that is no voter resigns when that is committed."""
        replica, change = self._replica, state.change
        if change is not None and change.offset is not None and change.offset < state.high_watermark:
            self._finish(state, Error.NONE)
        elif change is not None and now_ms >= change.deadline_ms:
            is_appended = change.offset is not None
            text = "the change was not committed in time, and still may be" if is_appended else _NO_ANSWER
            self._finish(state, Error.REQUEST_TIMED_OUT, text)
        if not replica.is_voter and self._is_committed(state):
            replica.become_resigned(now_ms)
            return now_ms
        return NEVER_MS if state.change is None else state.change.deadline_ms

    # kraft.version

    def upgrade_refusal(self) -> str | None:
        """Why kraft.version 1 cannot be; None when it can."""
        state = self._replica.state
        if not isinstance(state, Leader):
            return "this node does not lead the quorum"
        if self._replica.voters_in_log.kraft_version > 0:
            return None
        silent = [str(voter.key.id) for voter in state.reported_voters.voters if voter.key.directory_id is None]
        if silent:
            return f"of controllers {', '.join(silent)} the directory id is not known yet: are they up?"
        old = [str(voter.key.id) for voter in state.reported_voters.voters if not voter.supports(1)]
        return f"controllers {', '.join(old)} do not support it" if old else None

    def upgrade(self) -> None:
        """Write kraft.version 1 and the voters, as they reported themselves, to the log, which holds neither."""
        replica, state = self._replica, self._replica.state
        if not isinstance(state, Leader) or not state.started or replica.voters_in_log.kraft_version > 0:
            return
        if self.upgrade_refusal() is None:
            version = KRAFT_VERSION, encode_kraft_version(1)
            voters = KRAFT_VOTERS, encode_voters(state.reported_voters)
            replica.effects.append(AppendControl(replica.epoch, (version, voters)))

    # Checks, in Kafka's order

    def _check_add(self, now_ms: int, request: AddVoterRequest) -> Refusal | None:
        replica, state = self._replica, self._replica.state
        refusal = self._check_leader(request.cluster_id)
        if refusal is not None or not isinstance(state, Leader):
            return refusal
        if request.voter.id < 0 or request.voter.directory_id is None:
            return Refusal(Error.INVALID_REQUEST, "a voter needs a node id and a directory id")
        if not self._has_default_listener(request.endpoints):
            return Refusal(Error.INVALID_REQUEST, f"there is no endpoint for the listener {self._default_listener}")
        refusal = self._check_ready(now_ms, state)
        if refusal is not None:
            return refusal
        if replica.voters.get(request.voter.id) is not None:
            return Refusal(Error.DUPLICATE_VOTER, f"node {request.voter.id} is a voter already: {self._ids}")
        if not replica.requests.is_ready(now_ms, request.voter.id):
            return Refusal(Error.REQUEST_TIMED_OUT, f"node {request.voter.id} did not answer the last time")
        return None

    def _check_remove(self, now_ms: int, request: RemoveVoterRequest) -> Refusal | None:
        replica, state = self._replica, self._replica.state
        refusal = self._check_leader(request.cluster_id)
        if refusal is not None or not isinstance(state, Leader):
            return refusal
        if request.voter.id < 0:
            return Refusal(Error.INVALID_REQUEST, "a voter needs a node id")
        refusal = self._check_ready(now_ms, state)
        if refusal is not None:
            return refusal
        voter = replica.voters.get(request.voter.id)
        if voter is None or request.voter.directory_id not in (None, voter.key.directory_id):
            return Refusal(
                Error.VOTER_NOT_FOUND, f"node {request.voter.id} with that directory is no voter: {self._ids}"
            )
        if len(replica.voters) == 1:
            return Refusal(Error.VOTER_NOT_FOUND, f"node {request.voter.id} is the only voter, and one must stay")
        return self._check_majority(now_ms, state, replica.voters.without(request.voter.id))

    def _check_update(self, request: UpdateVoterRequest) -> Error:
        replica = self._replica
        if request.cluster_id not in (None, replica.identity.cluster_id):
            return Error.INCONSISTENT_CLUSTER_ID
        if request.epoch < replica.epoch:
            return Error.FENCED_LEADER_EPOCH
        if request.epoch > replica.epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        refusal = self._check_leader(None)  # the cluster is its own
        if refusal is not None:
            return refusal.error
        is_keyed = request.voter.id >= 0 and request.voter.directory_id is not None
        is_range = 0 <= request.kraft_version_min <= request.kraft_version_max
        if not is_keyed or not is_range or not self._has_default_listener(request.endpoints):
            return Error.INVALID_REQUEST
        return Error.NONE

    def _check_leader(self, cluster_id: str | None) -> Refusal | None:
        replica = self._replica
        if cluster_id not in (None, replica.identity.cluster_id):
            text = f'the cluster id is "{replica.identity.cluster_id}", not "{cluster_id}"'
            return Refusal(Error.INCONSISTENT_CLUSTER_ID, text)
        if not isinstance(replica.state, Leader):
            return Refusal(Error.NOT_LEADER_OR_FOLLOWER)
        return Refusal(Error.BROKER_NOT_AVAILABLE) if replica.is_shutting_down else None

    def _check_ready(self, now_ms: int, state: Leader) -> Refusal | None:
        """One change at a time, and none before a record of this epoch is committed: or two leaders' changes, each one

        voter away from the same set, could have majorities without a common voter.
        """
        if state.change is not None and now_ms < state.change.deadline_ms:
            return Refusal(Error.REQUEST_TIMED_OUT, "another change of the voters is under way")
        if state.high_watermark == UNKNOWN_OFFSET:
            return Refusal(Error.REQUEST_TIMED_OUT, "the leader has not committed a record of its epoch yet")
        if self._replica.voters_in_log.kraft_version == 0:
            text = "the voters are static with kraft.version 0: upgrade it to 1 first"
            return Refusal(Error.UNSUPPORTED_VERSION, text)
        if not self._is_committed(state):
            return Refusal(Error.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet")
        return None

    def _check_new_voter(
        self, now_ms: int, state: Leader, voter: ReplicaKey, response: ApiVersionsResponse
    ) -> Refusal | None:
        if response.error is not Error.NONE:
            text = f"node {voter.id} answered ApiVersions with {response.error.name}"
            return Refusal(Error.REQUEST_TIMED_OUT, text)
        level, versions = self._replica.voters_in_log.kraft_version, response.kraft_versions or (0, 0)
        if not versions[0] <= level <= versions[1]:
            text = f"node {voter.id} supports kraft.version {versions[0]} to {versions[1]}, and {level} is needed"
            return Refusal(Error.INVALID_REQUEST, text)
        progress = state.observers.get(voter)
        is_caught_up = progress is not None and progress.last_caught_up_ms >= 0
        if progress is None or not is_caught_up or now_ms - progress.last_fetch_ms >= CAUGHT_UP_MS_MAX:
            return Refusal(Error.REQUEST_TIMED_OUT, f"node {voter.id} has not caught up with the leader yet")
        return None

    def _check_majority(self, now_ms: int, state: Leader, voters: VoterSet) -> Refusal | None:
        """Refuse what could never be committed, and would leave no leader: Kafka appends it all the same."""
        window_ms = int(self._replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        reached = [
            voter_id
            for voter_id, progress in state.voters.items()
            if voter_id in voters.ids and progress.last_fetch_ms >= 0 and now_ms - progress.last_fetch_ms < window_ms
        ]
        count = len(reached) + voters.is_voter(self._replica.key)
        if count >= majority_size(len(voters)):
            return None
        rest = ", ".join(map(str, voters.ids))
        text = f"of the rest, voters {rest}, only {count} can be reached, which is no majority: start the others first"
        return Refusal(Error.REQUEST_TIMED_OUT, text)

    # Steps

    def _update(self, now_ms: int, state: Leader, request: UpdateVoterRequest) -> Error:
        known = self._replica.voters_in_log
        is_static = known.kraft_version == 0
        refusal = self._check_ready(now_ms, state)
        if refusal is not None and not (is_static and refusal.error is Error.UNSUPPORTED_VERSION):
            return refusal.error
        entry = Voter(request.voter, request.endpoints, request.kraft_version_min, request.kraft_version_max)
        if not entry.supports(known.kraft_version):
            return Error.INVALID_REQUEST
        voters = state.reported_voters if is_static else known.voters
        if voters.get(entry.key.id) is None or not (is_static or voters.is_voter(entry.key)):
            return Error.VOTER_NOT_FOUND
        if is_static:
            state.reported_voters = voters.with_voter(entry)
        elif voters.get(entry.key.id) != entry:
            self._append(voters.with_voter(entry))
        if entry.key.id != self._replica.id:
            self._leading.count_for_quorum(now_ms, state, entry.key)
        return Error.NONE

    def _append(self, voters: VoterSet) -> int:
        """Hand out the record; returns its offset, because no other append of this call comes before it."""
        self._replica.effects.append(AppendControl(self._replica.epoch, ((KRAFT_VOTERS, encode_voters(voters)),)))
        return self._replica.log.end_offset

    def _finish(self, state: Leader, error: Error, message: str | None = None) -> None:
        change, state.change = state.change, None
        if change is not None and change.request_id is not None:
            self._replica.reply(change.request_id, change.answer(error, message))

    def _is_committed(self, state: Leader) -> bool:
        offset = self._replica.voters_in_log.offset
        return offset is not None and offset < state.high_watermark

    # Listeners

    @property
    def _default_listener(self) -> str | None:
        own = self._replica.identity.endpoints
        return own[0].listener if own else None

    def _has_default_listener(self, endpoints: tuple[Endpoint, ...]) -> bool:
        name = self._default_listener
        return any(name in (None, endpoint.listener) for endpoint in endpoints)

    @property
    def _ids(self) -> str:
        return ", ".join(map(str, self._replica.voters.ids))
