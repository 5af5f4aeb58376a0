"""Checks every invariant on every replica from the logs alone: slow, the reference for the fast checks.

The world checks what an event may have broken. With `full_check`, everything is checked again after every event, so
that a test detects a violation that the fast checks miss.
"""

from itertools import combinations

from klamm.raft.voters.voter_history import VoterHistory
from klamm.raft.voters.voter_set import VotersInLog
from klamm.testing.simulator.invariants import InvariantViolatedError
from klamm.testing.simulator.invariants.committed import CommittedHistory
from klamm.testing.simulator.invariants.every import state_invariants
from klamm.testing.simulator.memory_log import DATA
from klamm.testing.simulator.simulated_replica import SimulatedReplica


class OverlookedError(AssertionError):
    """The fast checks missed a violation."""


class FullCheck:
    """Its invariants share no state with the fast ones."""

    def __init__(self) -> None:
        self._invariants = state_invariants(CommittedHistory())

    def check(self, replicas: dict[int, SimulatedReplica], touched: SimulatedReplica) -> None:
        """Check everything, the touched replica first. Raises OverlookedError."""
        try:
            for replica in (touched, *(other for other in replicas.values() if other is not touched)):
                _check_derived(replica)
                for invariant in self._invariants:
                    invariant.check(replicas, replica)
            for one, other in combinations(replicas.values(), 2):
                _check_matching(one, other)
        except InvariantViolatedError as error:
            raise OverlookedError(f"overlooked: {error}") from error


def _check_derived(replica: SimulatedReplica) -> None:
    """Data that is derived from the log for speed is consistent with the log."""
    log, chains = replica.log, replica.chains
    chain = (chains[log.start_offset - 1] if log.start_offset else 0) or 0
    for offset, record in enumerate(log.records, log.start_offset):
        chain = hash((chain, record))
        if chains[offset] != chain:
            raise InvariantViolatedError(f"the chain of {replica.id} at {offset} is another")
    controls = [offset for offset, record in enumerate(log.records, log.start_offset) if record.type != DATA]
    if log.control_offsets != controls:
        raise InvariantViolatedError(f"the control records of {replica.id} are at {controls}")
    size_bytes = sum(len(record.value) for record in log.records)
    if log.size_bytes != size_bytes:
        raise InvariantViolatedError(f"the records of {replica.id} have {size_bytes} bytes, not {log.size_bytes}")
    history = VoterHistory(VotersInLog(replica.voters))
    history.follow(log)
    if replica.known_voters() != history.newest:
        raise InvariantViolatedError(f"the log of {replica.id} says {history.newest}")


def _check_matching(one: SimulatedReplica, other: SimulatedReplica) -> None:
    """If two logs have a record with the same offset and epoch, all records before it are the same."""
    start = max(one.log.start_offset, other.log.start_offset)
    pairs = zip(
        one.log.records[start - one.log.start_offset :],
        other.log.records[start - other.log.start_offset :],
        strict=False,
    )
    for offset, (mine, theirs) in enumerate(pairs, start):
        if mine.epoch == theirs.epoch and one.chains[offset] != other.chains[offset]:
            raise InvariantViolatedError(f"{one.id} and {other.id} differ at offset {offset} of epoch {mine.epoch}")
