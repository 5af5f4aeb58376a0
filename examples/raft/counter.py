"""A counter that survives a crash: each run adds one. With three replicas it survives the loss of any of them."""

import asyncio
import sys

from klamm.raft import Replica


class Counter:
    def __init__(self) -> None:
        self.value = 0

    def apply(self, command: bytes) -> bytes:
        self.value += int(command)
        return str(self.value).encode()

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, data: bytes) -> None:
        self.value = int(data)


async def main(directory: str) -> None:
    async with Replica(Counter(), directory) as replica:
        print(int(await replica.execute(b"1")))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "counter-data"))
