"""One replica of a register with a client that prints its operations; run by a test that kills processes.

    python raft_register.py directory node_id {"1": "host:port", ...}

Prints a line for each event: ["lead", bool], ["begun", id, asked, time], ["ended", id, answer, time], with times of the
monotonic clock that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time

from klamm.raft import RaftConfig, Replica, ReplicaConfig, SnapshotConfig

QUICK = RaftConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=400,
    request_timeout_ms=400,
    election_backoff_max_ms=100,
    fetch_max_wait_ms=50,
)
CONFIG = ReplicaConfig(raft=QUICK, snapshots=SnapshotConfig(50_000, retention_bytes_max=-1), timeout_s=30)


class Register:
    def __init__(self) -> None:
        self.value = ""

    def apply(self, command: bytes) -> bytes:
        match json.loads(command):
            case ["write", new]:
                self.value = new
                return b"null"
            case ["cas", old, new]:
                is_same = self.value == old
                self.value = new if is_same else self.value
                return json.dumps(is_same).encode()
        raise ValueError(command)

    def snapshot(self) -> bytes:
        return self.value.encode()

    def restore(self, data: bytes) -> None:
        self.value = data.decode()


def tell(*event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def main(directory: str, node_id: int, voters: dict[int, str]) -> None:
    async with Replica(Register(), directory, node_id=node_id, voters=voters, config=CONFIG) as replica:
        replica.on_leader_change(lambda leadership: tell("lead", leadership.is_self))
        seen = ""
        for number in itertools.count():
            name = f"{os.getpid()}-{number}"
            asked = random.choice([["read"], ["write", name], ["cas", seen, name]])
            tell("begun", name, asked, time.monotonic())
            if asked == ["read"]:
                answer = seen = await replica.read(lambda register: register.value)
            else:
                answer = json.loads(await replica.execute(json.dumps(asked).encode()))
            tell("ended", name, answer, time.monotonic())
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), {int(key): at for key, at in json.loads(sys.argv[3]).items()}))
