"""How a process ends and how others react: hand-over, refused connections, crash detection."""

from klamm.raft import node
from klamm.raft import replica_state as replica
from klamm.raft.election import crash_detection
from klamm.raft.election.role_states import Resigned
from klamm.raft.replication import following


def a_leader_that_stops_does_not_wait_for_its_successor(patch):
    """A voter that shuts down stays reachable until another replica is the leader."""
    patch.setattr(node.RaftNode, "_may_stop", lambda self: True)


def a_leader_that_stops_sends_no_end_of_its_epoch(patch):
    """EndQuorumEpoch saves the others a fetch timeout (KIP-595)."""
    become_resigned = replica.Replica.become_resigned

    def quiet(self, now_ms):
        become_resigned(self, now_ms)
        if isinstance(self.state, Resigned):
            self.state.unacknowledged.clear()

    patch.setattr(replica.Replica, "become_resigned", quiet)


def all_successors_campaign_at_once(patch):
    """The successor with the longest log campaigns first; otherwise votes are split."""
    patch.setattr(following.Following, "_successor_backoff_ms", lambda self, candidates: 0)


def a_voter_that_refuses_is_waited_for(patch):
    """A leader that shuts down does not wait for a successor that the remaining voters cannot elect."""
    patch.setattr(crash_detection.CrashDetection, "on_refused", lambda self, node_id: None)


def a_leader_that_refuses_is_waited_for(patch):
    """A killed leader is detected by its closed port (docs/decisions/0014)."""
    patch.setattr(crash_detection.CrashDetection, "on_peer_crashed", lambda self, now_ms, node_id: None)


def an_alarm_is_believed_though_the_leader_speaks(patch):
    """A response of the leader ends a false alarm."""
    patch.setattr(crash_detection.CrashDetection, "on_sign_of_life", lambda self, node_id: None)
