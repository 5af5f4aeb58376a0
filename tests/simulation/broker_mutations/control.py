"""Checks of the controller before it changes a partition or a broker."""

from dataclasses import replace

from klamm.controller.controller import Controller
from klamm.controller.leadership import elections, isr_changes
from klamm.controller.leadership.elections import BrokerEvent
from klamm.controller.nodes import brokers, heartbeats
from klamm.controller.speculation import Speculation
from klamm.driving.running_time import RunningTime


def an_isr_is_changed_by_epochs_of_before(patch):
    """A proposal has the current leader epoch and partition epoch (KIP-497)."""
    patch.setattr(isr_changes._Changes, "_check_epochs", lambda self, partition, proposed: None)


def an_inactive_broker_joins_an_isr(patch):
    """A fenced broker or one in controlled shutdown is in no ISR (KIP-841)."""
    patch.setattr(isr_changes._Changes, "_check_members", lambda self, isr: None)


def a_heartbeat_of_an_earlier_life_counts(patch):
    """A heartbeat is from the registered incarnation (KIP-631)."""
    heartbeat = brokers.BrokerManager.heartbeat

    def careless(self, state, now_ms, request):
        with patch.context() as meanwhile:
            meanwhile.setattr(Speculation, "check_broker_epoch", lambda state, broker_id, epoch: None)
            return heartbeat(self, state, now_ms, request)

    patch.setattr(brokers.BrokerManager, "heartbeat", careless)


def a_proposal_of_an_earlier_life_counts(patch):
    """A proposal is from the registered incarnation of the leader (KIP-497)."""
    alter_partition = isr_changes.alter_partition

    def careless(elections, state, request):
        with patch.context() as meanwhile:
            meanwhile.setattr(Speculation, "check_broker_epoch", lambda state, broker_id, epoch: None)
            return alter_partition(elections, state, request)

    patch.setattr(isr_changes, "alter_partition", careless)


def a_member_of_an_earlier_life_joins_an_isr(patch):
    """An ISR member has fetched in its registered incarnation (KIP-903)."""
    ineligible = isr_changes._Changes._ineligible

    def careless(self, member):
        return ineligible(self, isr_changes.BrokerState(member.broker_id))

    patch.setattr(isr_changes._Changes, "_ineligible", careless)


def every_shutdown_counts_as_a_clean_one(patch):
    """A broker that was not shut down cleanly is no longer eligible (KIP-966)."""

    class Events:
        FENCED = UNCLEAN_SHUTDOWN = BrokerEvent.FENCED

    patch.setattr(brokers, "BrokerEvent", Events)


def leaders_are_elected_from_all_replicas(patch):
    """Without a request or a config that allows more, a leader comes from the ISR or the ELR."""
    at = elections.ElectionManager.at

    def careless(self, state):
        settings = replace(self._settings, unclean_leader_election_enable=True)
        return at(elections.ElectionManager(settings), state)

    patch.setattr(elections.ElectionManager, "at", careless)


def a_broker_that_stops_keeps_its_partitions(patch):
    """A controlled shutdown ends when other brokers have become the leaders of the broker's partitions."""
    next_state = heartbeats.BrokerHeartbeats.next_state

    def careless(self, request, registered_at, leads_any):
        return next_state(self, request, registered_at, False)

    patch.setattr(heartbeats.BrokerHeartbeats, "next_state", careless)


def a_silent_broker_is_never_fenced(patch):
    """A broker's session expires without heartbeats (KIP-631)."""
    patch.setattr(heartbeats.BrokerHeartbeats, "pop_expired", lambda self, now_ms: None)


def a_broker_is_unfenced_before_it_caught_up(patch):
    """A broker is unfenced when it has applied its own registration (KIP-631)."""
    next_state = heartbeats.BrokerHeartbeats.next_state

    def careless(self, request, registered_at, leads_any):
        return next_state(self, request, -1, leads_any)

    patch.setattr(heartbeats.BrokerHeartbeats, "next_state", careless)


def a_broker_stops_before_others_know_the_new_leaders(patch):
    """A controlled shutdown ends when the other brokers have applied the new leaders."""
    everything = heartbeats.EVERYTHING_REPLAYED
    patch.setattr(heartbeats.BrokerHeartbeats, "lowest_active_offset", lambda self: everything)


def a_live_broker_is_replaced(patch):
    """A registration for a broker id with a live session is rejected."""
    patch.setattr(heartbeats.BrokerHeartbeats, "has_valid_session", lambda self, broker_id, epoch, now_ms: False)


def a_fenced_broker_stays_in_its_isrs(patch):
    """A broker that is fenced leaves all ISRs, and is no leader any more (KIP-631)."""
    part_for_broker = elections.ElectionManager.part_for_broker

    def careless(self, state, event, broker_id, place):
        if event is BrokerEvent.FENCED:
            return [], None
        return part_for_broker(self, state, event, broker_id, place)

    patch.setattr(elections.ElectionManager, "part_for_broker", careless)


def sessions_end_while_the_controller_is_paused(patch):
    """Heartbeats that came while the controller did not run are handled before sessions end."""
    patch.setattr(RunningTime, "on_turn", lambda self, now_ms, due_ms: now_ms)
    patch.setattr(Controller, "_waits_for_heartbeats", lambda self: False)


def heartbeats_are_not_awaited_after_a_pause(patch):
    """The first check of sessions after a pause waits until the heartbeats that have arrived are read."""
    patch.setattr(Controller, "_waits_for_heartbeats", lambda self: False)
