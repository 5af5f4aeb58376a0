"""Minimal networks for tests of a peer's own decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.client.network import Address, ChannelHandler

Happening = Callable[[ChannelHandler], None]


class FakeChannel:
    """Accepts requests, and responds to none."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.is_closed = False

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        self.sent.append((api_key, api_version, body))
        return len(self.sent)

    def close(self) -> None:
        self.is_closed = True


class FakeNetwork:
    """Every channel has the same outcome shortly after it was opened; None: no event ever happens."""

    def __init__(self, fate: Happening | None = None) -> None:
        self.fate = fate
        self.channels: list[FakeChannel] = []

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> FakeChannel:
        channel = FakeChannel()
        self.channels.append(channel)
        if self.fate is not None:
            asyncio.get_running_loop().call_soon(self.fate, handler)
        return channel

    def close(self) -> None:
        pass
