"""Registers this controller with the active one, which publishes its endpoints and features (KIP-919)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from klamm._engine.metadata import Image
from klamm.controller.operations.nodes import CONTROLLER_REGISTRATION
from klamm.node.controller.controller_channel import ControllerChannel
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import CONTROLLER_REGISTRATION_LEVEL
from klamm.protocol.messages.registration import ControllerRegistrationRequest

log = logging.getLogger("klamm.node.registration")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 120.0
JITTER: Final = 0.02

ASK_TIMEOUT_MS: Final = 5_000


class ControllerRegistration:
    """Keeps this incarnation of the controller registered, as confirmed by the committed image, not by a response."""

    def __init__(self, request: ControllerRegistrationRequest, controller: ControllerChannel) -> None:
        self._request, self._controller = request, controller
        self._task: asyncio.Task[None] | None = None
        self._is_registered = False

    def on_published(self, image: Image) -> None:
        """A newer image is committed."""
        found = image.controller(self._request.controller_id)
        self._is_registered = found is not None and found.incarnation_id == self._request.incarnation_id
        level = image.metadata_version
        is_possible = level is not None and level >= CONTROLLER_REGISTRATION_LEVEL
        if is_possible and not self._is_registered and self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(self._forget)

    def close(self) -> None:
        """Stop registering."""
        if self._task is not None:
            self._task.cancel()

    def _forget(self, _: asyncio.Task[None]) -> None:
        self._task = None

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._is_registered:
            try:
                answer = await self._controller.ask(CONTROLLER_REGISTRATION, self._request, ASK_TIMEOUT_MS)
            except Exception:  # it is repeated until the controller is registered
                log.exception("this controller could not be registered; retrying")
            else:
                if answer.error_code is ErrorCode.NONE:
                    log.info("this controller is registered")
                    return
                log.info("the active controller answered %s to a registration; retrying", answer.error_code.name)
            import random  # Not at the top: only the pause before a retry needs it.

            await asyncio.sleep(pause_s * random.uniform(1 - JITTER, 1 + JITTER))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
