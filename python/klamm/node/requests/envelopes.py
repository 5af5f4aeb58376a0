"""Envelope (58): the active controller answers the requests that brokers forward for their clients (KIP-590)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from klamm.broker.request import Handler, RequestContext
from klamm.controller.driver import ControllerDriver
from klamm.node.requests.forwarding import answer_while_active
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode, MalformedRequest
from klamm.protocol.messages.forwarding import (
    Enveloped,
    EnvelopeError,
    EnvelopeRequest,
    EnvelopeResponse,
    open_envelope,
    seal,
)
from klamm.protocol.wire.codec import read, write

log = logging.getLogger("klamm.node.envelopes")


class EnvelopeHandlers:
    """Decodes envelopes, and wraps the responses."""

    def __init__(self, controller: ControllerDriver, handler_of: Callable[[RequestContext], Handler | None]) -> None:
        """`handler_of` finds the controller's handler of a forwarded request."""
        self._controller: Final = controller
        self._handler_of = handler_of

    async def envelope(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The response or an error; after NOT_CONTROLLER the broker repeats it at the active controller."""
        try:
            request = open_envelope(read(EnvelopeRequest, version, body))
            answer = await self._answer(context, request)
        except EnvelopeError as error:
            log.warning("an envelope of %s was refused with %s: %s", context.address, error.code.name, error)
            return write(EnvelopeResponse(error_code=error.code), version)
        if answer is None:
            return write(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER), version)
        return write(seal(request, answer), version)

    async def _answer(self, context: RequestContext, request: Enveloped) -> bytes | None:
        key, version = request.api_key, request.api_version
        forwarded = RequestContext(
            context.connection_id,
            key,
            version,
            request.client_id,
            context.listener,
            request.principal,
            request.address,
            context.on_controller,
            context.arrived_ms,
            context.deadline_ms,
        )
        api, handler = APIS.get(key), self._handler_of(forwarded)
        if api is None or not api.is_forwarded or handler is None:
            raise EnvelopeError(ErrorCode.INVALID_REQUEST, f"API {key} cannot be forwarded")
        if not api.versions[0] <= version <= api.versions[1]:
            raise EnvelopeError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} is not served in version {version}")
        try:
            return await answer_while_active(self._controller, handler, forwarded, version, request.body)
        except MalformedRequest as error:
            raise EnvelopeError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
