"""What the controller checks before it changes a partition or a broker."""

from klamm.controller.leadership import isr_changes
from klamm.controller.nodes import brokers
from klamm.controller.speculation import Speculation


def an_isr_is_changed_by_epochs_of_before(patch):
    """A proposal is of the current leader and partition epoch (KIP-497)."""
    patch.setattr(isr_changes._Changes, "_check_epochs", lambda self, partition, proposed: None)


def an_inactive_broker_joins_an_isr(patch):
    """A fenced broker, and one that shuts down, is in no ISR (KIP-841)."""
    patch.setattr(isr_changes._Changes, "_check_members", lambda self, isr: None)


def a_heartbeat_of_an_earlier_life_counts(patch):
    """A heartbeat is of the registered incarnation (KIP-631)."""
    heartbeat = brokers.BrokerManager.heartbeat

    def careless(self, state, now_ms, request):
        with patch.context() as meanwhile:
            meanwhile.setattr(Speculation, "check_broker_epoch", lambda state, broker_id, epoch: None)
            return heartbeat(self, state, now_ms, request)

    patch.setattr(brokers.BrokerManager, "heartbeat", careless)
