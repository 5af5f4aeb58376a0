"""The group coordinator on the engine's log: appends are pending while the loop does other work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from klamm._engine.groups import CommitRequest
from klamm.config.rules import checked
from klamm.config.sources import embedded_default
from klamm.controller.operations.topics import CREATE_TOPICS
from klamm.coordinator.runtime.driver import into
from klamm.formats.storage import format_blank
from klamm.node.node import Node
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.group_messages import (
    ZERO_ID,
    FetchedGroup,
    FetchGroup,
)
from klamm.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

GROUPS = [f"g{at}" for at in range(10)]


async def fetch(node: Node, group: str) -> int:
    fetched: asyncio.Future[FetchedGroup] = asyncio.get_running_loop().create_future()
    node.groups.offset_fetch(FetchGroup(group, None), into(fetched), require_stable=False)
    return (await fetched).topics[0].partitions[0].committed_offset


def commit(node: Node, group: str, offset: int) -> asyncio.Future[int | list[int]]:
    committed: asyncio.Future[int | list[int]] = asyncio.get_running_loop().create_future()
    node.groups.offset_commit(CommitRequest(group, [("t", ZERO_ID, [(0, offset, -1, None)])]), into(committed))
    return committed


async def test_a_load_finds_pending_appends(tmp_path: Path) -> None:
    config = checked(embedded_default(tmp_path / "data", 0, "127.0.0.1"))
    format_blank(config)
    node = Node(config, is_volatile=True)
    await node.start()
    topic = CreatableTopic("__consumer_offsets", 1, 1)
    await node.metadata.active_controller.ask(CREATE_TOPICS, CreateTopicsRequest((topic,), 30_000))
    async with asyncio.timeout(30):
        await node.groups.loaded()
        assert await commit(node, GROUPS[0], 0) == ErrorCode.NONE
        for number in range(1, 11):
            committed = [commit(node, group, number) for group in GROUPS]
            # After two turns of the loop the appends are in the engine, and the coordinator has seen no result yet.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # Loaded again in the same leader epoch: the log takes no append of another one.
            node.groups.on_resigned(0)
            node.groups.on_elected(0, 0)
            assert set(await asyncio.gather(*committed)) <= {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
            await node.groups.loaded()
            assert [await fetch(node, group) for group in GROUPS] == [number] * len(GROUPS)
    await node.stop()
