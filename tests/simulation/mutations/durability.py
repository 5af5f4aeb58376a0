"""What must be on disk before a message depends on it."""

from dataclasses import replace

from klamm.raft import node
from klamm.raft import replica_state as replica
from klamm.raft.effects import PersistElection, Reply, SendRequest
from klamm.raft.election import elections, role_states
from klamm.raft.replication import following, leading
from klamm.raft.voters.quorum import UNKNOWN_OFFSET, replicated_offset


def answer_before_the_election_is_durable(patch):
    """A response is sent after the quorum-state that it depends on is durable (KIP-595)."""

    def hasty_reply(self, request_id, response):
        self.effects.append(Reply(request_id, response, after=0))

    patch.setattr(replica.Replica, "reply", hasty_reply)


def ask_for_votes_before_the_own_vote_is_durable(patch):
    """A candidate's vote for itself must be durable as well (`QuorumState.transitionToCandidate`)."""

    def hasty_send(self, now_ms, to, request, endpoints=()):
        correlation_id = self.requests.begin(now_ms, to, request)
        where = endpoints or self.voters.endpoints(to)
        self.effects.append(SendRequest(to, where, correlation_id, request, after=0))

    patch.setattr(replica.Replica, "send", hasty_send)


def ask_for_votes_before_the_own_log_is_durable(patch):
    """A candidate asks for votes with a log that it will still have after a crash."""
    patch.setattr(elections.Elections, "_is_log_durable", lambda self: True)


def a_finished_write_counts_for_a_newer_ticket(patch):
    """A write makes durable what it began with, not what was handed over meanwhile (KIP-595)."""
    on_persisted = node.RaftNode.on_persisted

    def hasty(self, now_ms, ticket):
        return on_persisted(self, now_ms, self.replica.ticket)

    patch.setattr(node.RaftNode, "on_persisted", hasty)


def a_vote_is_not_written(patch):
    """A voter remembers its vote after a crash (Raft 5.2; votedId of quorum-state)."""
    add_vote = replica.Replica.add_vote

    def forgetful(self, now_ms, candidate):
        add_vote(self, now_ms, candidate)
        written = self.effects.pop()
        assert isinstance(written, PersistElection)
        self.ticket -= 1

    patch.setattr(replica.Replica, "add_vote", forgetful)


def an_epoch_is_not_written(patch):
    """A replica never returns to an epoch before one that it has sent (KIP-595)."""
    become_unattached = replica.Replica.become_unattached

    def forgetful(self, now_ms, epoch, leader_id=None):
        become_unattached(self, now_ms, epoch, leader_id)
        if any(isinstance(effect, PersistElection) for effect in self.effects):
            self.effects = [effect for effect in self.effects if not isinstance(effect, PersistElection)]
            self.ticket -= 1

    patch.setattr(replica.Replica, "become_unattached", forgetful)


def leader_counts_itself_before_its_flush(patch):
    """The leader counts its own log only up to the flushed offset (docs/decisions/0001)."""

    def hasty(self, state):
        ends = [progress.end_offset for progress in state.voters.values()]
        ends += [self._replica.log.end_offset] if self._replica.is_voter else []
        offset = replicated_offset(ends)
        if offset > max(state.epoch_start_offset, state.high_watermark):
            is_first, state.high_watermark = state.high_watermark == UNKNOWN_OFFSET, offset
            self._replica.advance_high_watermark(offset)
            if is_first:
                self._replica.announce_leadership()

    patch.setattr(leading.Leading, "_maybe_advance_high_watermark", hasty)


def follower_fetches_before_its_flush(patch):
    """A Fetch acknowledges all records below its offset, so voters flush before they fetch."""

    class Flushed:
        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            return self._real.end_offset if name == "flushed_offset" else getattr(self._real, name)

    tick = following.Following.tick

    def hasty(self, now_ms, state):
        real, self._replica.log = self._replica.log, Flushed(self._replica.log)
        try:
            return tick(self, now_ms, state)
        finally:
            self._replica.log = real

    patch.setattr(following.Following, "tick", hasty)


def leader_appends_before_its_election_is_durable(patch):
    """A leader that forgets its election may win the epoch again, and write two records at one offset and epoch."""
    start = leading.Leading.maybe_start_epoch

    def hasty(self):
        if isinstance(self._replica.state, role_states.Leader):
            self._replica.state.ticket = 0
        start(self)

    take = node.RaftNode._take_effects

    def take_hasty(self):
        self._leading.maybe_start_epoch()
        return take(self)

    patch.setattr(leading.Leading, "maybe_start_epoch", hasty)
    patch.setattr(node.RaftNode, "_take_effects", take_hasty)


def a_restarted_leader_may_lead_the_same_epoch_again(patch):
    """A restarted leader does not continue in its epoch: its log may have lost records that it sent (`QuorumState`)."""
    initial_state = node.RaftNode._initial_state

    def forgetful(self, now_ms, stored):
        if stored.leader_id == self.replica.id:
            stored = replace(stored, leader_id=None, voted=self.replica.key)
        return initial_state(self, now_ms, stored)

    patch.setattr(node.RaftNode, "_initial_state", forgetful)
