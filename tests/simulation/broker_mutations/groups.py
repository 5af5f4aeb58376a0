"""What the cores of group coordinators check, and what a shard and its runtime do about failures and loads."""

from klamm.coordinator.groups import commits
from klamm.coordinator.groups.commits import Commits
from klamm.coordinator.groups.consumer import consumer_groups, heartbeats
from klamm.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from klamm.coordinator.groups.consumer.group import NOT_OWNED, ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeats import Heartbeats
from klamm.coordinator.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from klamm.coordinator.groups.consumer.patterns import Patterns
from klamm.coordinator.groups.consumer.reconciliation import Reconciliation
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.modern.sessions import MEMBER_SESSION
from klamm.coordinator.groups.offsets import OffsetStore
from klamm.coordinator.groups.shard import GroupShard
from klamm.coordinator.runtime.driver import CoordinatorRuntime
from klamm.coordinator.transactions.shard import TransactionShard
from klamm.protocol.errors import ErrorCode

# Shards


def a_failed_transition_stays_pending(patch):
    """After a failed append no transition is pending."""
    patch.setattr(TransactionShard, "rollback", lambda self, snapshot: None)


def a_group_keeps_what_was_not_appended(patch):
    """After a failed append a group is as its log says."""
    patch.setattr(GroupShard, "rollback", lambda self, snapshot: None)


def an_elected_coordinator_loads_nothing(patch):
    """A coordinator that is elected again has missed what others wrote meanwhile."""
    on_elected = CoordinatorRuntime.on_elected

    def careless(self, partition, leader_epoch):
        known = self.shards.get(partition)
        if known is None:
            on_elected(self, partition, leader_epoch)
        else:
            known.leader_epoch = leader_epoch

    patch.setattr(CoordinatorRuntime, "on_elected", careless)
    patch.setattr(CoordinatorRuntime, "on_resigned", lambda self, partition, leader_epoch=None: None)


# Transactional offsets


def an_abort_commits_offsets(patch):
    """The offsets of an aborted transaction are dropped (KIP-98)."""
    end_transaction = OffsetStore.end_transaction

    def careless(self, producer_id, is_commit, overwritten):
        end_transaction(self, producer_id, True, overwritten)

    patch.setattr(OffsetStore, "end_transaction", careless)


def pending_offsets_are_visible(patch):
    """The offsets of an open transaction are not returned (KIP-447)."""

    def careless(self, producer_id, place, commit, overwritten):
        self.put(*place, commit, overwritten)

    patch.setattr(OffsetStore, "put_pending", careless)


def a_marker_is_answered_before_it_is_committed(patch):
    """A group ends a transaction when its marker is committed (KIP-98)."""
    on_marker = Commits.on_marker

    def careless(self, now_ms, ticket, marker):
        self._context.reply(ticket, ErrorCode.NONE)
        on_marker(self, now_ms, None, marker)

    patch.setattr(Commits, "on_marker", careless)


def a_loaded_marker_ends_nothing(patch):
    """A coordinator that loads a marker ends its transaction."""
    replay = GroupShard.replay

    def careless(self, record):
        if not record.is_control:
            replay(self, record)

    patch.setattr(GroupShard, "replay", careless)


# Members


def a_member_gets_what_another_uses(patch):
    """A partition is given to a member when no other has it (KIP-848)."""
    patch.setattr(ConsumerGroup, "owner_epoch", lambda self, topic_id, partition: NOT_OWNED)


def a_revocation_is_not_awaited(patch):
    """A partition is free when its member has said so (KIP-848)."""
    patch.setattr(Reconciliation, "_reports_any", lambda self, partitions: False)


def a_silent_member_stays(patch):
    """A member is removed after its session timeout (KIP-848)."""
    patch.setattr(ConsumerTimers, "renew_session", lambda self, now_ms, group_id, member: None)


def a_slow_member_keeps_its_partitions(patch):
    """A member that gives up nothing is removed after its rebalance timeout (KIP-848)."""
    patch.setattr(ConsumerTimers, "arm_rebalance", lambda self, now_ms, group_id, member: None)


def a_new_coordinator_awaits_no_member(patch):
    """A coordinator that loads a group begins the sessions of its members."""
    patch.setattr(ConsumerGroups, "on_loaded", lambda self, now_ms: None)


def a_group_keeps_its_topics(patch):
    """A group gets another target when its topics have changed (KIP-848)."""
    patch.setattr(GroupShard, "on_metadata", lambda self, now_ms, changed, *, created: [])


def a_removed_member_commits(patch):
    """Only a member commits the offsets of its partitions (KIP-848)."""
    patch.setattr(commits, "check_commit", lambda group, request: ErrorCode.NONE)


# Static members


def an_instance_id_is_taken_from_a_live_member(patch):
    """A process gets an instance id when the one before has left, or its session has ended (KIP-848)."""
    static_member = Heartbeats._static_member

    def careless(self, group, member_id, request, *rest):
        holder = group.static_member(request.instance_id)
        if request.member_epoch != JOIN_EPOCH or holder is None:
            return static_member(self, group, member_id, request, *rest)
        member, replacing = heartbeats.replacement(group, holder, member_id)
        rest[-1].extend(replacing)
        return member

    patch.setattr(Heartbeats, "_static_member", careless)


def a_replaced_process_goes_on(patch):
    """Only the process that has an instance id now is a member (KIP-345)."""
    for module in (consumer_groups, heartbeats):
        patch.setattr(module, "check_holder", lambda holder, member_id, instance_id: holder)


def a_static_member_that_left_stays(patch):
    """The partitions of a static member that does not return are given to others after its session (KIP-848)."""
    leave = ConsumerGroups._leave

    def careless(self, now_ms, request):
        response = leave(self, now_ms, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            self._context.timers.cancel((MEMBER_SESSION, request.group_id, request.member_id))
        return response

    patch.setattr(ConsumerGroups, "_leave", careless)


# Regular expressions


def a_regular_expression_finds_nothing(patch):
    """The topics that a regular expression matches are assigned (KIP-848)."""
    patch.setattr(Patterns, "on_resolved", lambda self, group_id, found: [])
