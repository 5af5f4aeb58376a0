"""A process that acquires a lock repeatedly, counts, and watches all changes; run by a test that kills processes.

    python raft_tree.py directory node_id {"1": "host:port", ...} position

Prints ["lead", bool], ["held", token, time], ["released", token, time], ["added", total], and ["seen", position] of
each change after that position; times are of the monotonic clock that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from klamm.raft import RaftConfig, ReplicaConfig
from klamm.raft.recipes import Counter, Lock, Session, SessionLostError, Tree

QUICK = RaftConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=400,
    request_timeout_ms=400,
    election_backoff_max_ms=100,
    fetch_max_wait_ms=50,
)
SESSION_S = 2.0


def tell(*event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def watch(tree: Tree, since: int) -> None:
    async for change in tree.changes(since=since):
        tell("seen", change.position)


async def hold(tree: Tree, session: Session) -> None:
    lock, counter = Lock(session, "/lock"), Counter(tree, "/count")
    while session.is_alive:
        token = await lock.acquire()
        begun = time.monotonic()
        if session.is_alive:
            tell("held", token, begun)
            tell("added", await counter.add())
            # A client that loses its session meanwhile has held the lock no longer than its own clock said.
            tell("released", token, min(time.monotonic(), session.alive_until_s))
        await lock.release()
        await asyncio.sleep(0.01)


async def main(directory: str, node_id: int, voters: dict[int, str], since: int) -> None:
    async with Tree(directory, node_id=node_id, voters=voters, config=ReplicaConfig(raft=QUICK, timeout_s=30)) as tree:
        tree.replica.on_leader_change(lambda leadership: tell("lead", leadership.is_self))
        watching = asyncio.create_task(watch(tree, since))
        while not watching.done():
            try:
                await hold(tree, await tree.session(SESSION_S))
            except SessionLostError:
                continue
        await watching


if __name__ == "__main__":
    given = {int(key): at for key, at in json.loads(sys.argv[3]).items()}
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), given, int(sys.argv[4])))
