"""An operation of the active controller: its API, its types and messages, what decides it and what refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.controller.controller import Controller
    from klamm.controller.result import Result

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class PendingRequest(Generic[Q]):
    """A request whose turn has come, and what a decision may draw on beside the controller's state."""

    request: Q
    api_version: int
    now_ms: Callable[[], int]
    """The clock, read when the turn has come."""
    random_bytes: Callable[[int], bytes]
    """That many random bytes."""


@dataclass(frozen=True)
class Wire:
    """The messages of an operation whose own types are not shaped as the messages are."""

    request: type[Any]
    response: type[Any]
    read_request: Callable[[Any], Any]
    write_request: Callable[[Any], Any]
    read_response: Callable[[Any, Any], Any]
    """Of the operation's request and the message."""
    write_response: Callable[[Any, Any], Any]
    """Of the operation's request and its answer."""


@dataclass(frozen=True)
class Operation(Generic[Q, A]):
    """One operation."""

    api_key: ApiKey
    request: type[Q]
    response: type[A]
    decide: Callable[[Controller, PendingRequest[Q]], Result[A]]
    refuse: Callable[[Q, ErrorCode, str | None], A]
    """The answer to a request that fails as a whole: each API has its own way to say so."""
    timeout_ms: Callable[[Q], int] = lambda request: 1
    """What the request allows for the wait for its turn; 0 or less: it has missed it."""
    broker_id: Callable[[Q], int | None] = lambda request: None
    """The broker that it changes: one operation of a broker is under way at a time."""
    by_quorum: bool = False
    """Whether the decision depends on who is in the quorum when its turn comes: voters come and go."""
    wire: Wire | None = None

    def decided(self, controller: Controller, asked: PendingRequest[Q]) -> Result[A]:
        """What the controller makes of a request; a KafkaError of the core is the refusal of all of it."""
        from klamm.controller.result import Result

        try:
            return self.decide(controller, asked)
        except KafkaError as error:
            return Result(self.refuse(asked.request, error.code, error.message))
