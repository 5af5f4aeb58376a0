"""Replicas whose logs were damaged while they were stopped, and which know their former log end."""

from klamm.raft.log.metadata_log import durable_end
from klamm.testing.simulator.memory_log import MemoryLog
from klamm.testing.simulator.replica_data import LostDisk
from klamm.testing.simulator.simulated_replica import SimulatedReplica


def damage_log(replica: SimulatedReplica, keep: int) -> None:
    """Lose the flushed records from `keep` on, while the replica is stopped."""
    if replica.before_damage is None or not has_lost_records(replica):
        held = MemoryLog(flushed_offset=replica.log.flushed_offset)
        replica.before_damage = LostDisk(replica.key, held, list(replica.chains))
    replica.log.damage(keep)
    del replica.chains[replica.log.end_offset :]


def has_lost_records(replica: SimulatedReplica) -> bool:
    """Whether its log lacks records that it held before it was damaged."""
    return not durable_end(replica.log).is_up_to_date_with(replica.log.proven_end)
