"""Members with the classic protocol, in classic groups and in consumer groups, and migrations between these."""

from klamm.coordinator.groups import commits
from klamm.coordinator.groups.consumer import classic_members, departures, upgrade
from klamm.coordinator.groups.consumer.timers import ConsumerTimers
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.coordinator.groups.records import GroupRecord


def an_upgraded_group_forgets_what_members_use(patch):
    """After an upgrade members have what they had in the classic group (KIP-848)."""
    patch.setattr(upgrade, "_owned", lambda assignment, topics, epoch: {})


def a_downgraded_group_counts_from_the_start(patch):
    """The generation of a group after its downgrade is its epoch before (KIP-848)."""
    downgraded = departures.downgraded

    def careless(*given):
        classic, records = downgraded(*given)
        classic.generation_id = 0
        assignments = {member.member_id: member.assignment for member in classic.members.values()}
        return classic, [*records[:-1], GroupRecord(classic.group_id, classic.to_record(assignments))]

    patch.setattr(departures, "downgraded", careless)


def a_group_of_classic_members_stays_a_consumer_group(patch):
    """A group whose last member of the consumer protocol goes becomes a classic one (KIP-848)."""
    for module in (classic_members, departures):
        patch.setattr(module, "is_downgrade", lambda context, group, going, left: False)


def a_classic_member_is_not_asked_to_join(patch):
    """A member of the classic protocol joins again to reach a new epoch (KIP-848)."""
    patch.setattr(classic_members, "_must_rejoin", lambda group, member: False)


def a_slow_classic_member_keeps_its_partitions(patch):
    """A member of the classic protocol that does not join again is removed after its rebalance timeout (KIP-848)."""
    patch.setattr(ConsumerTimers, "await_join", lambda self, now_ms, group_id, member: None)


def a_silent_classic_member_stays(patch):
    """A member of the classic protocol in a consumer group has a session, too (KIP-848)."""
    renew_session = ConsumerTimers.renew_session

    def careless(self, now_ms, group_id, member):
        if member.classic is None:
            renew_session(self, now_ms, group_id, member)

    patch.setattr(ConsumerTimers, "renew_session", careless)


def a_silent_member_of_a_classic_group_stays(patch):
    """A member of a classic group is removed after its session timeout."""
    patch.setattr(Rebalances, "on_session_timer", lambda self, now_ms, group_id, member_id: None)


def a_member_of_an_earlier_generation_commits(patch):
    """A commit in a classic group is of its generation."""
    check_member = commits._check_member
    patch.setattr(
        commits,
        "_check_member",
        lambda group, generation_id, request: check_member(group, group.generation_id, request),
    )


def an_assignment_is_given_before_it_is_committed(patch):
    """Members of a classic group get an assignment that is committed."""
    assign = Rebalances.assign

    def careless(self, now_ms, group, assignments):
        assign(self, now_ms, group, assignments)
        self._become_stable(now_ms, group, assignments)

    patch.setattr(Rebalances, "assign", careless)
