"""All invariants together, for one quorum from its start."""

from klamm.testing.simulator.invariants import Invariant, MessageInvariant
from klamm.testing.simulator.invariants.acknowledged_changes import AcknowledgedChanges
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.invariants.committed_immutable import CommittedImmutable
from klamm.testing.simulator.invariants.election_safety import ElectionSafety
from klamm.testing.simulator.invariants.epoch_begins import EpochBegins
from klamm.testing.simulator.invariants.leader_completeness import LeaderCompleteness
from klamm.testing.simulator.invariants.leadership_announced import LeadershipAnnounced
from klamm.testing.simulator.invariants.log_matching import LogMatching
from klamm.testing.simulator.invariants.majority_holds import MajorityHolds
from klamm.testing.simulator.invariants.monotonic import Monotonic
from klamm.testing.simulator.invariants.one_change_at_a_time import OneChangeAtATime
from klamm.testing.simulator.invariants.one_vote import OneVote
from klamm.testing.simulator.invariants.sent_is_durable import SentIsDurable
from klamm.testing.simulator.invariants.state_is_fold import StateIsFold
from klamm.testing.simulator.invariants.voters_of_log import VotersOfLog
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class EveryInvariant:
    """Checks what an event may have broken. A replica whose look has not changed since it passed is skipped."""

    def __init__(self, history: CommittedHistory) -> None:
        """`history` is extended by the invariants."""
        self._history = history
        monotonic = Monotonic()
        self._of_messages: list[MessageInvariant] = [
            OneVote(),
            SentIsDurable(),
            monotonic,
            AcknowledgedChanges(history),
        ]
        self._of_states = [*state_invariants(history), monotonic]
        self._passed: dict[int, tuple[int, tuple[object, ...]]] = {}  # the history's length, and a replica's look

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Only `touched` has changed. Raises InvariantViolatedError."""
        look, committed = touched.look(), self._history.chains
        if self._passed.get(touched.id) != (len(committed), look):
            for invariant in self._of_states:
                invariant.check(replicas, touched)
            self._passed[touched.id] = (len(committed), look)
        if touched.outbox or touched.handed_out:  # after the states: what is committed by this event is in the history
            for of_messages in self._of_messages:
                of_messages.check_messages(touched)


def state_invariants(history: CommittedHistory) -> list[Invariant]:
    """One instance of each invariant that does not check messages."""
    return [
        ElectionSafety(),
        LogMatching(),
        CommittedImmutable(history),
        LeaderCompleteness(history),
        MajorityHolds(history),
        StateIsFold(history),
        VotersOfLog(),
        OneChangeAtATime(history),
        EpochBegins(),
        LeadershipAnnounced(history),
    ]
