"""How parts of a node ask the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation

Q = TypeVar("Q")
A = TypeVar("A")

FORWARD_TIMEOUT_MS: Final = 60_000


class ControllerChannel(Protocol):
    """The active controller, wherever it is; `klamm.node.controller.active_controller.ActiveController` is it."""

    async def ask(self, operation: Operation[Q, A], request: Q, timeout_ms: int = FORWARD_TIMEOUT_MS) -> A:
        """Its answer; after the time-out one that refuses with REQUEST_TIMED_OUT."""
