"""Several trees in one loop, connected by a hub, with short timeouts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from klamm.raft import LocalHub
from klamm.raft.recipes import Tree
from tests.support.quick_quorum import CONFIG
from tests.support.waiting import until


class Grove:
    """Three trees; each can crash and restart."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hub = folder, LocalHub()
        self.trees: dict[int, Tree] = {}

    async def start(self, node_id: int) -> Tree:
        """Start one more."""
        voters = dict.fromkeys((1, 2, 3), "")
        network = self.hub.network(node_id)
        tree = Tree(self.folder / str(node_id), node_id=node_id, voters=voters, config=CONFIG, network=network)
        await tree.start()
        self.trees[node_id] = tree
        return tree

    async def lose(self, node_id: int) -> Tree:
        """Crash the tree: nothing is handed over, no session is closed. Returns it."""
        self.hub.detach(node_id)
        tree = self.trees.pop(node_id)
        await tree.replica.close(timeout_s=0)
        return tree

    async def leader(self) -> int:
        """The node id of the leader."""

        def leading() -> list[int]:
            return [node_id for node_id, tree in self.trees.items() if tree.replica.leadership.is_self]

        await until(leading)
        return leading()[0]


@asynccontextmanager
async def grove(folder: Path) -> AsyncIterator[Grove]:
    """Three running trees."""
    three = Grove(folder)
    for node_id in (1, 2, 3):
        await three.start(node_id)
    try:
        yield three
    finally:
        for node_id in list(three.trees):
            await three.lose(node_id)
