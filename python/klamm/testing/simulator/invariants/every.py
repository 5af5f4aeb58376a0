"""All invariants together, as they watch one quorum from its beginning."""

from klamm.testing.simulator.invariants import Invariant
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.invariants.committed_immutable import CommittedImmutable
from klamm.testing.simulator.invariants.election_safety import ElectionSafety
from klamm.testing.simulator.invariants.epoch_begins import EpochBegins
from klamm.testing.simulator.invariants.leader_completeness import LeaderCompleteness
from klamm.testing.simulator.invariants.log_matching import LogMatching
from klamm.testing.simulator.invariants.majority_holds import MajorityHolds
from klamm.testing.simulator.invariants.monotonic import Monotonic
from klamm.testing.simulator.invariants.one_vote import OneVote
from klamm.testing.simulator.invariants.state_is_fold import StateIsFold
from klamm.testing.simulator.invariants.voters_of_log import VotersOfLog


def every_invariant(history: CommittedHistory) -> list[Invariant]:
    """One of each; `history` is what they see grow."""
    return [
        ElectionSafety(),
        OneVote(),
        LogMatching(),
        CommittedImmutable(history),
        LeaderCompleteness(history),
        MajorityHolds(history),
        Monotonic(),
        StateIsFold(history),
        VotersOfLog(),
        EpochBegins(),
    ]
