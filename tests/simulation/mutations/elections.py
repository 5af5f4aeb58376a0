"""Elections: votes, pre-votes, majorities."""

import pytest

from klamm.raft import node
from klamm.raft import replica_state as replica
from klamm.raft.election import elections, role_states, voting
from klamm.raft.election.role_states import Follower
from klamm.raft.log import metadata_log as log
from klamm.raft.messages import VoteResponse
from klamm.raft.replication import following
from klamm.raft.voters import reconfiguration
from klamm.testing.simulator import simulated_replica as simulated


def vote_without_log_check(patch):
    """A vote is granted only to an up-to-date log (Raft 5.4.1)."""
    patch.setattr(log.OffsetAndEpoch, "is_up_to_date_with", lambda self, other: True)


def vote_twice_in_an_epoch(patch):
    """A voter has one vote per epoch (Raft 5.2)."""
    patch.setattr(voting, "_is_free_or_given", lambda election, candidate, log_is_up_to_date: log_is_up_to_date)


def vote_where_the_leader_is_known(patch):
    """A replica that knows the leader of an epoch grants no vote in it (`unattachedOrProspectiveCanGrantVote`)."""

    def careless(election, candidate, log_is_up_to_date):
        if election.voted is not None and not election.voted.matches(candidate):
            return False
        return log_is_up_to_date

    patch.setattr(voting, "_is_free_or_given", careless)


def a_vote_stays_given_whatever_is_left_of_the_log(patch):
    """A vote is not granted again to a candidate whose log has become shorter (unlike in Kafka)."""

    def careless(election, candidate, log_is_up_to_date):
        if election.voted is not None:
            return election.voted.matches(candidate)
        return election.leader_id is None and log_is_up_to_date

    patch.setattr(voting, "_is_free_or_given", careless)


def an_observer_believes_a_silent_leader(patch):
    """A replica that is an observer in its own log may be a voter in others' logs, who need its vote (KIP-853)."""
    patch.setattr(elections.Elections, "_is_leader_silent", lambda self, now_ms: False)


def half_is_a_majority(patch):
    """A majority is more than half of the voters (Raft 5.2)."""
    patch.setattr("klamm.raft.voters.quorum.majority_size", lambda voter_count: max(voter_count // 2, 1))


def late_votes_count(patch):
    """A response counts only in the epoch and role of its request (`KafkaRaftClient`)."""

    def careless(self, envelope):
        if isinstance(envelope.response, VoteResponse) and envelope.life == self.life:
            self.running._elections.on_vote_response(self.now_ms(), envelope.source, envelope.response)
        receive(self, envelope)

    receive = simulated.SimulatedReplica.receive
    patch.setattr(simulated.SimulatedReplica, "receive", careless)


def a_new_disk_is_as_good_as_the_old_one(patch):
    """A voter is a node id with the directory that stores its votes (KIP-853)."""
    patch.setattr(reconfiguration.VoterSet, "is_voter", lambda self, key: key.id in self.ids)
    patch.setattr(elections, "is_meant_for", lambda replica, voter: voter is None or voter.id == replica.id)
    patch.setattr("klamm.raft.voters.voter_set.ReplicaKey.matches", lambda self, other: self.id == other.id)


def campaign_without_a_pre_vote(patch):
    """A replica without a leader checks that it would win before it raises the epoch (KIP-996)."""

    def hasty(self, now_ms):
        self._replica.become_prospective(now_ms)
        self._replica.become_candidate(now_ms)
        self.advance(now_ms)

    patch.setattr(elections.Elections, "campaign", hasty)


def a_pre_vote_is_granted_while_the_leader_is_heard(patch):
    """A follower of a live leader grants no pre-vote (KIP-996)."""

    def careless(state, *arguments, **options):
        if isinstance(state, Follower) and options["pre_vote"]:
            return options["log_is_up_to_date"]
        return can_grant_vote(state, *arguments, **options)

    can_grant_vote = elections.can_grant_vote
    patch.setattr(elections, "can_grant_vote", careless)


def a_leader_grants_a_pre_vote(patch):
    """A leader grants no pre-vote (KIP-996)."""

    def careless(state, *arguments, **options):
        if isinstance(state, role_states.Leader) and options["pre_vote"]:
            return options["log_is_up_to_date"]
        return can_grant_vote(state, *arguments, **options)

    can_grant_vote = elections.can_grant_vote
    patch.setattr(elections, "can_grant_vote", careless)


def a_pre_vote_takes_the_vote(patch):
    """A pre-vote does not use up the vote (KIP-996)."""
    on_vote_request = elections.Elections.on_vote_request

    def binding(self, now_ms, request_id, request):
        on_vote_request(self, now_ms, request_id, request)
        free = self._replica.election.voted is None and self._replica.leader_id is None
        if request.pre_vote and free and request.epoch == self._replica.epoch:
            self._replica.add_vote(now_ms, request.candidate)

    patch.setattr(elections.Elections, "on_vote_request", binding)


def a_log_that_lost_records_votes(patch):
    """A voter that lost records, perhaps acknowledged ones, grants no vote until it has them again."""
    on_vote_request = elections.Elections.on_vote_request

    def careless(self, now_ms, request_id, request):
        with pytest.MonkeyPatch.context() as within:
            within.setattr(replica.Replica, "has_lost_records", False)
            on_vote_request(self, now_ms, request_id, request)

    patch.setattr(elections.Elections, "on_vote_request", careless)


def a_log_that_lost_records_campaigns(patch):
    """It does not campaign either: voters that lack the same records would vote for it."""

    def careless(self):
        return self.is_voter

    patch.setattr(replica.Replica, "may_campaign", property(careless))


def a_second_leader_of_an_epoch_is_believed(patch):
    """An epoch has one leader: a message that names another one is invalid (`KafkaRaftClient`)."""
    patch.setattr(following.Following, "is_consistent", lambda self, epoch, leader_id: True)


def a_leader_is_sought_where_others_say(patch):
    """The leader's own endpoints are current; those from other replicas may be from before its restart (KIP-853)."""
    learn = following.Following.learn

    def stubborn(self, now_ms, epoch, leader_id, endpoints, *, from_leader=False):
        learn(self, now_ms, epoch, leader_id, endpoints)

    patch.setattr(following.Following, "learn", stubborn)


def a_leader_is_sought_for_ever_where_it_was(patch):
    """If a leader cannot be reached at its known endpoints, those from other replicas are tried."""
    learn = following.Following.learn

    def stubborn(self, now_ms, epoch, leader_id, endpoints, *, from_leader=False):
        state, known = self._replica.state, self._replica.leader_endpoints
        learn(self, now_ms, epoch, leader_id, endpoints, from_leader=from_leader)
        if self._replica.state is state:
            self._replica.leader_endpoints = known

    patch.setattr(following.Following, "learn", stubborn)


def a_redirection_is_followed_at_once_though_it_tells_nothing_new(patch):
    """Replicas that name a former leader are not asked again without a backoff."""
    learn_from = node.RaftNode._learn_from

    def hasty(self, now_ms, response):
        learn_from(self, now_ms, response)
        return True

    patch.setattr(node.RaftNode, "_learn_from", hasty)


def a_removed_voter_may_not_campaign(patch):
    """A voter whose removal is in its log but not known as committed may be the only electable one (Ongaro 4.2.2)."""
    patch.setattr(replica.Replica, "may_campaign", property(lambda self: self.is_voter))
