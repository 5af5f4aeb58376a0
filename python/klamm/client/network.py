"""Connections for an event loop: what `Peer` asks of them, and the engine's, which move bytes and decide nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, assert_never

from klamm import _engine
from klamm.client import ClientError

Address = tuple[str, int]
Versions = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key."""


class ChannelHandler(Protocol):
    """What happens to a channel, in this order. Called on the loop's thread, never while the channel is being used."""

    def on_accepted(self, address: Address) -> None:
        """The other side took the connection; its address and port as numbers."""

    def on_opened(self, versions: Versions) -> None:
        """Requests may be sent, in these versions."""

    def on_answer(self, correlation_id: int, body: bytes) -> None:
        """The body of the answer to the request of that correlation id."""

    def on_closed(self, error: ClientError) -> None:
        """It could not be opened, or is lost: nothing follows. Not called after `Channel.close`."""


class Channel(Protocol):
    """A connection with any number of requests under way."""

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send a request; the correlation id of its answer. Only while the channel is open."""

    def close(self) -> None:
        """Close it at once. Nothing more happens to it."""


class Network(Protocol):
    """What makes channels."""

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> Channel:
        """Begin to connect. No time-out but the system's ends that."""

    def close(self) -> None:
        """Make no more channels."""


class EngineNetwork:
    """Channels of the engine. To be made and used on the loop's thread; nothing is there before the first channel."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        """`config`: keys of Kafka's clients for TLS and SASL."""
        self._config = dict(config or {})
        self._loop = asyncio.get_running_loop()
        self._queue: _engine.ChannelQueue | None = None
        self._handlers: dict[int, ChannelHandler] = {}

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> Channel:
        """See `Network.open`. Raises ConfigError, OSError."""
        if self._queue is None:
            self._queue = _engine.ChannelQueue()
            self._loop.add_reader(self._queue.fd, self._take)
        channel = self._queue.open(*address, {**self._config, "client.id": client_id})
        self._handlers[channel.id] = handler
        return _EngineChannel(channel, self._handlers)

    def close(self) -> None:
        """See `Network.close`."""
        queue, self._queue = self._queue, None
        if queue is not None:
            self._loop.remove_reader(queue.fd)
            queue.close()

    def _take(self) -> None:
        for channel_id, event in self._queue.take() if self._queue is not None else ():
            handler = self._handlers.get(channel_id)
            if handler is None:
                continue  # it was closed meanwhile
            try:
                self._give(channel_id, handler, event)
            except Exception as error:  # of one handler; the others' events are here, too
                context = {"message": f"a connection's {type(event).__name__} was not handled", "exception": error}
                self._loop.call_exception_handler(context)

    def _give(self, channel_id: int, handler: ChannelHandler, event: _engine.ChannelEvent) -> None:
        match event:
            case _engine.ChannelAnswered():
                handler.on_answer(event.correlation_id, event.body)
            case _engine.ChannelAccepted():
                handler.on_accepted(event.address)
            case _engine.ChannelOpened():
                handler.on_opened(event.versions)
            case _engine.ChannelClosed():
                del self._handlers[channel_id]
                handler.on_closed(event.error)
            case _:
                assert_never(event)


class _EngineChannel:
    def __init__(self, channel: _engine.Channel, handlers: dict[int, ChannelHandler]) -> None:
        self._channel, self._handlers = channel, handlers
        self.send = channel.send

    def close(self) -> None:
        self._handlers.pop(self._channel.id, None)
        self._channel.close()
