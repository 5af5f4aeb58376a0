"""Runs the quorum's core: clock, disk and network. All I/O of `raft` is in this package."""

from klamm.raft.driver.quorum_state import QuorumStateFile, read_election
from klamm.raft.driver.raft_driver import RaftDriver

__all__ = ["QuorumStateFile", "RaftDriver", "read_election"]
