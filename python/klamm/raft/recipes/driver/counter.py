"""A number that many add to."""

from __future__ import annotations

from klamm.raft.recipes.driver.tree import Tree


class Counter:
    """A counter at a path of its own: no addition is lost, none counts twice."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path

    async def add(self, number: int = 1) -> int:
        """Add `number`; returns the sum. Sums are unique when all callers add 1."""
        return int(await self._tree.change("add", self._path, number))

    async def value(self) -> int:
        """The sum; 0 before anything was added."""
        node = await self._tree.find(self._path)
        return int(node.data) if node is not None else 0
