"""One at a time, whatever dies: start it several times with the ids of several voters, and stop some.

`python lock.py 1 a:9200 b:9200 c:9200`, the same with 2 and with 3.
"""

import asyncio
import sys

from klamm.raft.recipes import Lock, Tree


async def main(node_id: int, *addresses: str) -> None:
    async with Tree(f"tree-{node_id}", node_id=node_id, voters=dict(enumerate(addresses, 1))) as tree:
        session = await tree.session(timeout_s=10)
        async with Lock(session, "/locks/work", data=str(node_id).encode()) as token:
            print(f"{node_id} works with token {token}", flush=True)
            over = asyncio.Event()
            session.on_end(over.set)
            await over.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
