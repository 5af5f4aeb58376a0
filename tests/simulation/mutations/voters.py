"""Changes of the voter set (KIP-853)."""

from klamm.raft import node
from klamm.raft import replica_state as replica
from klamm.raft.election.role_states import Leader
from klamm.raft.replication import leading
from klamm.raft.voters import reconfiguration, voter_history
from klamm.raft.voters.quorum import replicated_offset


def two_changes_at_once(patch):
    """One change at a time; the next begins when it is committed (Ongaro's dissertation, 4.1)."""
    check_ready = reconfiguration.Reconfiguration._check_ready

    def careless(self, now_ms, state):
        state.change = None
        refusal = check_ready(self, now_ms, state)
        return None if refusal is not None and "last change" in (refusal.message or "") else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_ready", careless)


def a_change_before_a_commit_of_the_own_epoch(patch):
    """No change begins before a record of the leader's own epoch is committed (Ongaro 4.1, as corrected in 2015)."""

    def careless(self, now_ms, state):
        return None if state.started else reconfiguration.Refusal(reconfiguration.Error.REQUEST_TIMED_OUT)

    patch.setattr(reconfiguration.Reconfiguration, "_check_ready", careless)


def a_change_is_acknowledged_when_appended(patch):
    """A request for a change is answered when the change is committed (KIP-853)."""
    tick = reconfiguration.Reconfiguration.tick

    def hasty(self, now_ms, state):
        if state.change is not None and state.change.offset is not None:
            self._finish(state, reconfiguration.Error.NONE)
        return tick(self, now_ms, state)

    patch.setattr(reconfiguration.Reconfiguration, "tick", hasty)


def voters_that_stand_elsewhere_complete_a_change(patch):
    """A change is committed with its own record; cleaning may move the record of the same voters."""
    on_voters_changed = node.RaftNode._on_voters_changed

    def careless(self, now_ms):
        state = self.replica.state
        if isinstance(state, Leader) and state.change is not None and state.change.offset is None:
            state.change.offset = self.replica.voters_in_log.offset
        on_voters_changed(self, now_ms)

    patch.setattr(node.RaftNode, "_on_voters_changed", careless)


def a_change_acts_when_committed(patch):
    """A voter set takes effect when it is appended (KIP-853)."""
    newest = replica.Replica.voters_in_log

    def late(self):
        return self.voter_history.below(max(self.high_watermark, 0)) if self.voter_history else newest.fget(self)

    patch.setattr(replica.Replica, "voters_in_log", property(late))


def truncation_undoes_no_change(patch):
    """A voter set that is truncated from the log was never in effect."""
    follow = voter_history.VoterHistory.follow

    def forgetful(self, log):
        entries = list(self._entries)
        changed = follow(self, log)
        if len(self._entries) < len(entries) and log.start_offset == self._start_offset:
            self._entries = entries
            return False
        return changed

    patch.setattr(voter_history.VoterHistory, "follow", forgetful)


def a_removed_leader_counts_itself(patch):
    """A leader that is not a voter does not count itself (Ongaro 4.2.2)."""

    def careless(self, state):
        replica_here = self._replica
        ends = [progress.end_offset for progress in state.voters.values()] + [replica_here.log.flushed_offset]
        offset = replicated_offset(ends)
        if offset > max(state.epoch_start_offset, state.high_watermark):
            state.high_watermark = offset
            replica_here.advance_high_watermark(offset)

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", careless)


def a_removed_leader_leads_on(patch):
    """A leader resigns when its removal is committed."""

    def stubborn(self, now_ms, state):
        real, self._is_committed = self._is_committed, lambda state: False
        try:
            return tick(self, now_ms, state)
        finally:
            self._is_committed = real

    tick = reconfiguration.Reconfiguration.tick
    patch.setattr(reconfiguration.Reconfiguration, "tick", stubborn)


def a_new_voter_need_not_have_caught_up(patch):
    """A new voter must have caught up, or the quorum may be unavailable until it has (KIP-853)."""
    check = reconfiguration.Reconfiguration._check_new_voter

    def careless(self, now_ms, state, voter, response):
        refusal = check(self, now_ms, state, voter, response)
        return None if refusal is not None and "caught up" in (refusal.message or "") else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_new_voter", careless)


def a_new_voter_may_know_no_kraft_version(patch):
    """A new voter must support the quorum's kraft.version (KIP-853)."""
    check = reconfiguration.Reconfiguration._check_new_voter

    def careless(self, now_ms, state, voter, response):
        refusal = check(self, now_ms, state, voter, response)
        return None if refusal is not None and "kraft.version" in (refusal.message or "") else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_new_voter", careless)


def a_voter_is_added_twice(patch):
    """A node id can be a voter only once (KIP-853)."""
    check = reconfiguration.Reconfiguration._check_add

    def careless(self, now_ms, request):
        refusal = check(self, now_ms, request)
        return None if refusal is not None and refusal.error is reconfiguration.Error.DUPLICATE_VOTER else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_add", careless)


def the_last_voter_is_removed(patch):
    """The last voter cannot be removed."""
    check = reconfiguration.Reconfiguration._check_remove

    def careless(self, now_ms, request):
        refusal = check(self, now_ms, request)
        return None if refusal is not None and "only voter" in (refusal.message or "") else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_remove", careless)


def a_removal_may_lose_the_majority(patch):
    """A change that could never be committed is rejected (beyond Kafka: docs/decisions/0031)."""
    patch.setattr(reconfiguration.Reconfiguration, "_check_majority", lambda self, now_ms, state, voters: None)


def static_voters_are_changed(patch):
    """With kraft.version 0 the voters are static (KIP-853)."""
    check_ready = reconfiguration.Reconfiguration._check_ready

    def careless(self, now_ms, state):
        refusal = check_ready(self, now_ms, state)
        error = reconfiguration.Error.UNSUPPORTED_VERSION
        return None if refusal is not None and refusal.error is error else refusal

    patch.setattr(reconfiguration.Reconfiguration, "_check_ready", careless)


def an_update_adds_a_directory(patch):
    """Only a voter updates its entry, and never to another directory (KIP-853)."""
    patch.setattr(reconfiguration.VoterSet, "is_voter", lambda self, key: key.id in self.ids)


def an_upgrade_asks_nobody(patch):
    """kraft.version 1 needs the directory id and the support of every voter (KIP-853)."""

    def careless(self):
        return None if isinstance(self._replica.state, Leader) else "this node does not lead the quorum"

    patch.setattr(reconfiguration.Reconfiguration, "upgrade_refusal", careless)
