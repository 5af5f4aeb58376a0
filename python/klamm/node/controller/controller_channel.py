"""The interface by which parts of a node send requests to the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation

Q = TypeVar("Q")
A = TypeVar("A")

FORWARD_TIMEOUT_MS: Final = 60_000


class ControllerChannel(Protocol):
    """The active controller; implemented by `klamm.node.controller.active_controller.ActiveController`."""

    async def ask(self, operation: Operation[Q, A], request: Q, timeout_ms: int = FORWARD_TIMEOUT_MS) -> A:
        """Its response; after the timeout a response with the error REQUEST_TIMED_OUT."""
