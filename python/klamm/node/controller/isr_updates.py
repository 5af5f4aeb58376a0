"""Sends the ISRs that this broker's leaders propose to the controller (AlterPartition, KIP-497)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from klamm._engine.node import Engine
from klamm.node.controller.controller_channel import ControllerChannel
from klamm.protocol.errors import ErrorCode

log = logging.getLogger("klamm.node.isr_updates")

VERSION: Final = 3
RETRY_PAUSE_S: Final = 0.05
"""After a top-level error, as in Apache Kafka 4.3."""


class IsrUpdates:
    """One request is in flight at a time. The engine keeps and encodes the proposals."""

    def __init__(self, engine: Engine, controller: ControllerChannel, broker_epoch: Callable[[], int]) -> None:
        self._engine = engine
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._task: asyncio.Task[None] | None = None
        self._has_more = False
        self._is_closed = False

    def send(self) -> None:
        """Send what leaders propose: now, or after the request in flight."""
        if self._is_closed:
            return
        self._has_more = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        """Stop sending."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._has_more:
            self._has_more = False
            while (body := self._engine.alter_partition_request(self._broker_epoch())) is not None:
                answer = None
                try:
                    answer = await self._ask(body)
                finally:  # without an answer the engine proposes them again
                    self._engine.on_alter_partition_response(answer)
                if answer is None:
                    await asyncio.sleep(RETRY_PAUSE_S)

    async def _ask(self, body: bytes) -> bytes | None:
        """The body of the response; None if the request must be sent again."""
        from klamm.controller.operations.replicas import ALTER_PARTITION
        from klamm.protocol.messages.partition_changes import AlterPartitionRequest
        from klamm.protocol.wire import codec

        try:
            request = codec.read(AlterPartitionRequest, VERSION, body)
            response = await self._controller.ask(ALTER_PARTITION, request)
            if response.error_code is ErrorCode.NONE:
                return codec.write(response, VERSION)
            log.info("the controller answered %s to proposed ISRs; retrying", response.error_code.name)
        except Exception:  # whatever it is, the proposals are sent again
            log.exception("ISRs could not be proposed to the controller; proposing them again")
        return None
