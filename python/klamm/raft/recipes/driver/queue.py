"""A queue: first in, first out, each item to one taker."""

from __future__ import annotations

from klamm.raft.recipes.driver.tree import Tree
from klamm.raft.recipes.nodes import child_of


class Queue:
    """A queue at a path of its own.

    `get` removes the item that it returns: if the caller dies, the item is lost. Each item is one node in the memory of
    every replica. Use the queue to distribute work, and topics for streams.
    """

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path

    async def put(self, item: bytes) -> None:
        """Add an item at the end."""
        await self._tree.create(child_of(self._path, "item-"), item, is_sequential=True, with_parents=True)

    async def get(self, *, timeout_s: float | None = None) -> bytes:
        """Take the first item; wait for one. Raises TimeoutError, having taken none."""
        while True:
            found = await self._tree.change("pop", self._path)
            if found is not None:
                return bytes(found[1])
            await self._tree.wait_for(lambda machine: machine.children(self._path), timeout_s=timeout_s)

    async def size(self) -> int:
        """How many items there are."""
        return await self._tree.replica.read(lambda machine: len(machine.children(self._path)))
