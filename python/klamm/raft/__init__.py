"""The quorum: election and replication policy, a driver for it, and the library API. Knows no topics.

    from klamm.raft import Replica

    async with Replica(machine, "data", node_id=1, voters={1: "a:9200", 2: "b:9200", 3: "c:9200"}) as replica:
        result = await replica.execute(b"command")
        answer = await replica.read(lambda machine: machine.value)

`Replica` is for asyncio, `SyncReplica` for threads, and the program provides a `StateMachine`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm.raft.config import RaftConfig
    from klamm.raft.library.driver.config import ReplicaConfig
    from klamm.raft.library.driver.leadership import Leadership
    from klamm.raft.library.driver.network import LocalHub
    from klamm.raft.library.driver.replica import Replica
    from klamm.raft.library.driver.threads import SyncReplica
    from klamm.raft.library.errors import (
        CommandRefusedError,
        MembershipError,
        NoLeaderError,
        OutcomeUnknownError,
        ReplicaDirectoryError,
    )
    from klamm.raft.library.state_machine import StateMachine
    from klamm.raft.log.snapshots import SnapshotConfig
    from klamm.raft.ports import RaftStoppedError

__all__ = [
    "CommandRefusedError",
    "Leadership",
    "LocalHub",
    "MembershipError",
    "NoLeaderError",
    "OutcomeUnknownError",
    "RaftConfig",
    "RaftStoppedError",
    "Replica",
    "ReplicaConfig",
    "ReplicaDirectoryError",
    "SnapshotConfig",
    "StateMachine",
    "SyncReplica",
]

_HOMES = {
    "CommandRefusedError": "library.errors",
    "Leadership": "library.driver.leadership",
    "LocalHub": "library.driver.network",
    "MembershipError": "library.errors",
    "NoLeaderError": "library.errors",
    "OutcomeUnknownError": "library.errors",
    "RaftConfig": "config",
    "RaftStoppedError": "ports",
    "Replica": "library.driver.replica",
    "ReplicaConfig": "library.driver.config",
    "ReplicaDirectoryError": "library.errors",
    "SnapshotConfig": "log.snapshots",
    "StateMachine": "library.state_machine",
    "SyncReplica": "library.driver.threads",
}


def __getattr__(name: str) -> Any:
    """A node imports raft at its start, and needs nothing of the library."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'klamm.raft' has no attribute '{name}'")
    return getattr(import_module(f"klamm.raft.{home}"), name)
