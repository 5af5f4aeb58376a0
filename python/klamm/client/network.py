"""Connections in an event loop: the interface that `Peer` uses, and its implementation by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, assert_never

from klamm._engine import client
from klamm.client import ClientError, ConnectionLostError

Address = tuple[str, int]
Versions = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key."""


class ChannelHandler(Protocol):
    """Receives the events of a channel, in this order, in the loop's thread.

    Never called during a call to the channel. After an exception the channel is closed, and `on_closed` called, even if
    it was `on_closed` that raised: each request in flight needs an outcome.
    """

    def on_accepted(self, address: Address) -> None:
        """The TCP connection is established; the numeric address and port of the other side."""

    def on_opened(self, versions: Versions) -> None:
        """Requests may be sent from now on, in these versions."""

    def on_answer(self, correlation_id: int, body: bytes) -> None:
        """The body of the response with that correlation id."""

    def on_closed(self, error: ClientError) -> None:
        """The channel could not be opened, or the connection is lost.

        The last event; not called after `Channel.close`.
        """


class Channel(Protocol):
    """A connection with any number of requests in flight."""

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send a request; returns its correlation id. Only while the channel is open."""

    def close(self) -> None:
        """Close it at once. No further events."""


class Network(Protocol):
    """Opens channels."""

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> Channel:
        """Start to connect. Without a timeout of its own: only the system's applies."""

    def close(self) -> None:
        """Open no more channels."""


class EngineNetwork:
    """Channels of the engine. Use it in the loop's thread; it allocates nothing before the first channel."""

    def __init__(self, config: Mapping[str, str] | None = None, conditions: client.Conditions | None = None) -> None:
        """`config`: keys of Kafka's clients for TLS and SASL. `conditions`: those of an embedded node."""
        self._config, self._conditions = dict(config or {}), conditions
        self._loop = asyncio.get_running_loop()
        self._queue: client.ChannelQueue | None = None
        self._handlers: dict[int, ChannelHandler] = {}
        self._channels: dict[int, client.Channel] = {}

    def open(self, address: Address, client_id: str, handler: ChannelHandler) -> Channel:
        """See `Network.open`. Raises ConfigError, OSError."""
        if self._queue is None:
            self._queue = client.ChannelQueue(self._conditions)
            self._loop.add_reader(self._queue.fd, self._take)
        channel = self._queue.open(*address, {**self._config, "client.id": client_id})
        self._handlers[channel.id], self._channels[channel.id] = handler, channel
        return _EngineChannel(channel, self._forget)

    def _forget(self, channel_id: int) -> None:
        self._handlers.pop(channel_id, None)
        self._channels.pop(channel_id, None)

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
                continue  # the channel was closed meanwhile
            channel = self._channels[channel_id]
            try:
                self._give(channel_id, handler, event)
            except Exception as error:  # affects one connection; continue with the events of the others
                self._report(type(event).__name__, error)
                self._forget(channel_id)
                channel.close()
                lost = ConnectionLostError(
                    f"the connection was closed, because an event of it was not handled: {error!r}"
                )
                try:
                    handler.on_closed(lost)
                except Exception as next_error:  # the channel is closed in any case
                    self._report("end", next_error)

    def _report(self, event: str, error: Exception) -> None:
        self._loop.call_exception_handler({"message": f"a connection's {event} was not handled", "exception": error})

    def _give(self, channel_id: int, handler: ChannelHandler, event: client.ChannelEvent) -> None:
        match event:
            case client.ChannelAnswered():
                handler.on_answer(event.correlation_id, event.body)
            case client.ChannelAccepted():
                handler.on_accepted(event.address)
            case client.ChannelOpened():
                handler.on_opened(event.versions)
            case client.ChannelClosed():
                self._forget(channel_id)
                handler.on_closed(event.error)
            case _:
                assert_never(event)


class _EngineChannel:
    def __init__(self, channel: client.Channel, forget: Callable[[int], None]) -> None:
        self._channel, self._forget = channel, forget
        self.send = channel.send

    def close(self) -> None:
        self._forget(self._channel.id)
        self._channel.close()
