"""What the driver guarantees to the core: the order of disk, network and listeners. Detected by seeds."""

import asyncio

from klamm.raft.driver import delivery, peer_messages, quorum_state
from klamm.raft.driver import leased_fetches as answers
from klamm.raft.driver import raft_driver as replica
from klamm.raft.election.role_states import Leader
from klamm.raft.replication import leading
from klamm.raft.replication.waiters import CommitWaiters
from klamm.testing.simulator.fetch_answers import SimulatedAnswers
from klamm.testing.simulator.fetch_stream import SimulatedStream


def quorum_state_is_renamed_without_fsync(patch):
    """A rename may become durable before the file's bytes (`FileQuorumStateStore` syncs before it renames)."""

    def hasty(self, data):
        beside = self.path.with_name("quorum-state.tmp")
        self._files.write(beside, data, sync=False)
        self._files.replace(beside, self.path)
        self._files.sync_directory(self.path.parent)

    patch.setattr(quorum_state.QuorumStateFile, "write", hasty)


def the_directory_of_quorum_state_is_not_synced(patch):
    """A rename is durable once its directory is synced."""

    def hasty(self, data):
        beside = self.path.with_name("quorum-state.tmp")
        self._files.write(beside, data, sync=True)
        self._files.replace(beside, self.path)

    patch.setattr(quorum_state.QuorumStateFile, "write", hasty)


def quorum_state_is_overwritten(patch):
    """The old bytes are kept until the new ones are durable."""

    def hasty(self, data):
        self._files.write(self.path, data, sync=True)
        self._files.sync_directory(self.path.parent)

    patch.setattr(quorum_state.QuorumStateFile, "write", hasty)


def quorum_state_is_believed_as_it_is_read(patch):
    """A file that a killed process renamed without a sync is made durable before any message depends on it."""
    patch.setattr(quorum_state.QuorumStateFile, "read", lambda self: self._files.read(self.path))


def a_finished_write_counts_for_a_newer_ticket(patch):
    """What was handed over during a write is not on disk yet."""
    on_written = replica.RaftDriver._on_election_written

    def hasty(self, ticket, error):
        on_written(self, self._node.replica.ticket, error)

    patch.setattr(replica.RaftDriver, "_on_election_written", hasty)


def nothing_waits_for_quorum_state(patch):
    """Requests and responses are sent once what they depend on is durable."""

    def hasty(self):
        held, self._held = self._held, []
        for effect in held:
            if isinstance(effect, replica.fx.Reply):
                self._reply(effect)
            elif not self._take_over(effect):
                self.send(effect)

    patch.setattr(peer_messages.PeerMessages, "release", hasty)


def a_proposal_is_acknowledged_when_it_is_flushed(patch):
    """A proposal is acknowledged once a majority holds the record."""
    on_flushed = replica.RaftDriver._on_flushed

    def hasty(self, error):
        self._waiters.complete_below(self._log.flushed_offset)
        on_flushed(self, error)

    patch.setattr(replica.RaftDriver, "_on_flushed", hasty)


def a_proposal_is_acknowledged_one_commit_early(patch):
    """The high watermark is the first offset that is not committed."""
    complete_below = CommitWaiters.complete_below
    patch.setattr(CommitWaiters, "complete_below", lambda self, offset: complete_below(self, offset + 1))


def leadership_is_delivered_before_what_was_committed(patch):
    """A listener becomes the leader only after it has received all records committed before."""
    on_commit = delivery.Delivery.on_commit

    def late(self, high_watermark):
        asyncio.get_running_loop().call_soon(on_commit, self, high_watermark)

    def early(self, epoch):
        self._listener.on_leader(epoch)

    patch.setattr(delivery.Delivery, "on_commit", late)
    patch.setattr(delivery.Delivery, "on_leader", early)


def a_flush_is_awaited_by_no_one(patch):
    """The core is notified when its log is durable."""
    patch.setattr(replica.RaftDriver, "_on_flushed", lambda self, error: None)


def a_stream_acknowledges_before_its_flush(patch):
    """The next fetch of a stream acknowledges its appended records, so they are flushed before."""
    patch.setattr(SimulatedStream, "_flush", SimulatedStream._fetch_on)


def the_core_is_not_told_what_a_stream_fetched(patch):
    """The core is notified of what a stream fetched before any other event, including the stream's end."""
    patch.setattr(replica.RaftDriver, "_take_fetched", lambda self: None)


def answers_go_on_without_the_leadership(patch):
    """Responses without the core stop before the core would respond differently."""
    patch.setattr(answers.LeasedFetches, "revoke_before", lambda self, effects: None)
    patch.setattr(answers.LeasedFetches, "revoke_if_outdated", lambda self: None)


def answers_count_the_leader_before_its_flush(patch):
    """Responses without the core count this replica's own log as the core does."""
    patch.setattr(SimulatedAnswers, "_own_offset", lambda self: self._around.log.end_offset)


def a_new_disk_is_answered_as_the_old_one(patch):
    """A voter's fetches count only with its directory id (KIP-853), whether or not the core answers them."""

    def careless(self, asker):
        state = self._replica.state
        return isinstance(state, Leader) and asker.id in state.voters

    patch.setattr(leading.Leading, "counts", careless)
