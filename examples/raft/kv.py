"""A key-value store on three machines (or ports): `python kv.py 1 a:9200 b:9200 c:9200`, the same with 2 and with 3.

Then type `name=value` to set and `name` to get, at any of them.
"""

import asyncio
import json
import sys

from klamm.raft import Replica


class Store:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: bytes) -> bytes:
        name, value = command.decode().split("=", 1)
        self.values[name] = value
        return b"ok"

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, data: bytes) -> None:
        self.values = json.loads(data)


async def main(node_id: int, *addresses: str) -> None:
    voters = dict(enumerate(addresses, 1))
    async with Replica(Store(), f"kv-{node_id}", node_id=node_id, voters=voters) as replica:
        replica.on_leader_change(lambda leadership: print(f"leader: {leadership.leader_id}", file=sys.stderr))
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if "=" in line:
                print((await replica.execute(line.encode())).decode(), flush=True)
            else:
                print(await replica.read(lambda store, name=line: store.values.get(name)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
