"""Handlers of the requests that the active controller decides."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from klamm.broker.request import Handler, RequestContext, monotonic_ms
from klamm.controller.operations.operation import Operation
from klamm.controller.requester import Requester
from klamm.protocol.wire.codec import read, write

T = TypeVar("T")


class Run(Protocol):
    """`ControllerDriver.run`."""

    def __call__(
        self, operation: Operation[Any, Any], request: Any, api_version: int, requester: Requester
    ) -> Awaitable[Any]:
        """The response to a request of that version; errors are part of it."""


def operation_handler(operation: Operation[Any, Any], run: Run) -> Handler:
    """A handler that decodes the operation's request, runs it, and encodes the response."""
    wire = operation.wire

    async def handle(context: RequestContext, version: int, body: bytes) -> bytes:
        message = read(operation.request if wire is None else wire.request, version, body)
        request = message if wire is None else wire.read_request(message)
        requester = Requester(context.principal.name, context.client_id or "")
        answer = await run(operation, _with_time_left(context, request), version, requester)
        return write(answer if wire is None else wire.write_response(request, answer), version)

    return handle


def _with_time_left(context: RequestContext, request: T) -> T:
    """As in Apache Kafka, a request whose timeout passed while it was queued is not started: its timeout becomes 0."""
    timeout_ms = getattr(request, "timeout_ms", 0)
    is_over = timeout_ms > 0 and context.arrived_ms + timeout_ms <= monotonic_ms()
    return replace(request, timeout_ms=0) if is_over else request  # type: ignore[type-var]
