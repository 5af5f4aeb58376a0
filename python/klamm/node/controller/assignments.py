"""Reports to the controller in which log directories this broker's replicas are (AssignReplicasToDirs, KIP-858)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from klamm.controller.operations.nodes import ASSIGN_REPLICAS_TO_DIRS
from klamm.node.controller.controller_channel import ControllerChannel
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.registration import AssignReplicasToDirsRequest

log = logging.getLogger("klamm.node.assignments")

MAX_PER_REQUEST: Final = 2250
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0


class Assignments:
    """Assignments to report to the controller. One request is in flight at a time."""

    def __init__(
        self,
        node_id: int,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        on_assigned: Callable[[Sequence[tuple[bytes, bytes, int]]], None] = lambda assigned: None,
    ) -> None:
        """`on_assigned` receives the assignments that the controller has accepted."""
        self._on_assigned = on_assigned
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._pending: dict[tuple[bytes, int], bytes] = {}
        self._is_started = False
        self._task: asyncio.Task[None] | None = None

    def add(self, unassigned: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Add directory id, topic id and partition, as from `Engine.publish`; the newest one counts."""
        for directory_id, topic_id, partition in unassigned:
            self._pending[topic_id, partition] = directory_id
        self._send()

    async def start(self) -> None:
        """The broker is registered: report the assignments known so far, and later ones as they come."""
        self._is_started = True
        self._send()
        if self._task is not None:
            await self._task

    def close(self) -> None:
        """Stop reporting."""
        self._is_started = False
        if self._task is not None:
            self._task.cancel()

    def _send(self) -> None:
        if self._is_started and self._pending and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._pending:
            sent = dict(islice(self._pending.items(), MAX_PER_REQUEST))
            assignments = tuple((found, *place) for place, found in sent.items())
            request = AssignReplicasToDirsRequest(self._node_id, self._broker_epoch(), assignments)
            try:
                answer = await self._controller.ask(ASSIGN_REPLICAS_TO_DIRS, request)
            except Exception:  # they are repeated until the controller has them
                log.exception("assignments of directories could not be sent to the controller; sending them again")
            else:
                if answer.error_code is ErrorCode.NONE:
                    # A refused partition no longer exists; a new image reports what has replaced it.
                    self._forget(sent)
                    codes = zip(assignments, answer.partition_errors, strict=False)
                    self._on_assigned([found for found, code in codes if code is ErrorCode.NONE])
                    pause_s = FIRST_PAUSE_S
                    continue
                log.info("the controller answered %s to assignments of directories; retrying", answer.error_code.name)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _forget(self, sent: dict[tuple[bytes, int], bytes]) -> None:
        for place, directory_id in sent.items():
            if self._pending.get(place) == directory_id:
                del self._pending[place]
