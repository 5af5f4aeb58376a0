"""The recipes of ZooKeeper's clients, on a tree of small nodes that `klamm.raft` replicates.

    from klamm.raft.recipes import Lock, Tree

    async with Tree("data", node_id=1, voters={1: "a:9200", 2: "b:9200", 3: "c:9200"}) as tree:
        session = await tree.session(timeout_s=10)
        async with Lock(session, "/locks/report") as token:
            ...

`Tree` is for asyncio and `SyncTree` for threads. Every program that uses the tree runs a replica of it: a voter, or an
observer, which is any node id that is not among the voters.
"""

from __future__ import annotations

from klamm.raft.recipes.driver.barrier import Barrier
from klamm.raft.recipes.driver.counter import Counter
from klamm.raft.recipes.driver.election import Election
from klamm.raft.recipes.driver.lock import Lock
from klamm.raft.recipes.driver.queue import Queue
from klamm.raft.recipes.driver.session import Session
from klamm.raft.recipes.driver.threads import SyncTree
from klamm.raft.recipes.driver.tree import Tree
from klamm.raft.recipes.errors import (
    BadVersionError,
    ChangesLostError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    TreeError,
)
from klamm.raft.recipes.machine import TreeMachine
from klamm.raft.recipes.nodes import Change, Node

__all__ = [
    "BadVersionError",
    "Barrier",
    "Change",
    "ChangesLostError",
    "Counter",
    "Election",
    "Lock",
    "NoNodeError",
    "Node",
    "NodeExistsError",
    "NotEmptyError",
    "Queue",
    "Session",
    "SessionLostError",
    "SyncTree",
    "Tree",
    "TreeError",
    "TreeMachine",
]
