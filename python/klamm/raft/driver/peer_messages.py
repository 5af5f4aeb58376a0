"""The messages of a driver to other replicas: each leaves when the election state that it depends on is durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm.raft.effects import Reply, SendRequest
from klamm.raft.messages import Response
from klamm.raft.node import RaftNode
from klamm.raft.ports import ReplyTo, Transport

logger = logging.getLogger("klamm.raft")


class PeerMessages:
    """Requests to other replicas and responses to theirs. Must be created and used on the loop's thread."""

    def __init__(
        self,
        node: RaftNode,
        transport: Transport | None,
        take_over: Callable[[SendRequest], bool],
        on_answer: Callable[[int, Response | None], None],
    ) -> None:
        """`take_over` returns whether a request is a streamed fetch, which is not sent here.

        `on_answer` receives the correlation id of a request and its response; None if there will be none.
        """
        self._node, self._transport = node, transport
        self._take_over, self._on_answer = take_over, on_answer
        self._loop = asyncio.get_running_loop()
        self._held: list[SendRequest | Reply] = []  # until quorum-state is durable
        self._replies: dict[int, ReplyTo] = {}
        self._next_request_id = 0

    def register(self, reply: ReplyTo) -> int:
        """The id for a request of another replica: the `Reply` with this id goes to `reply`."""
        self._next_request_id += 1
        self._replies[self._next_request_id] = reply
        return self._next_request_id

    def hold(self, effect: SendRequest | Reply) -> None:
        """Keep a message until `release`."""
        self._held.append(effect)

    def release(self) -> None:
        """Send the messages that depend only on durable election state."""
        held, self._held = self._held, []
        for waiting in held:
            effect = self._node.settled(waiting)
            if effect.after > self._node.replica.durable_ticket:
                self._held.append(effect)
            elif isinstance(effect, Reply):
                self._reply(effect)
            elif not self._take_over(effect):
                self.send(effect)

    def send(self, effect: SendRequest) -> None:
        """Send a request now."""
        if self._transport is None:
            raise RuntimeError(f"a request to replica {effect.to}, and no transport to send it")
        try:
            self._transport.send(effect, lambda response: self._on_answer(effect.correlation_id, response))
        except Exception:  # it counts as unanswered, and the core repeats it
            logger.exception("%s could not be sent to replica %d", type(effect.request).__name__, effect.to)
            self._loop.call_soon(self._on_answer, effect.correlation_id, None)

    def _reply(self, effect: Reply) -> None:
        """If the response cannot be created, the request ends without one, and the peer repeats it."""
        reply = self._replies.pop(effect.request_id)
        try:
            reply(effect.response, effect.read)
        except Exception:  # one response that fails must not stop the replica
            logger.exception("%s could not be answered", type(effect.response).__name__)
