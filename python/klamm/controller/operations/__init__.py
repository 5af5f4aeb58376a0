"""The operations of the active controller, each registered once: its messages, what decides it, and how it is refused.

The driver runs them, the handlers read and write their messages, a node asks another's controller for them, and a
broker forwards them; all of that is driven by the `Operation`. One is registered in the module of its kind, which is
imported when it is needed first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from klamm.controller.controller import Controller
    from klamm.controller.result import Result

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class Asked(Generic[Q]):
    """A request whose turn has come, and what a decision may draw on beside the controller's state."""

    request: Q
    api_version: int
    now_ms: Callable[[], int]
    """The clock, read when the turn has come."""
    dice: Callable[[int], bytes]
    """So many random bytes."""


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
    decide: Callable[[Controller, Asked[Q]], Result[A]]
    refuse: Callable[[Q, ErrorCode, str | None], A]
    """The answer to a request that fails as a whole: each API has its own way to say so."""
    timeout_ms: Callable[[Q], int] = lambda request: 1
    """What the request allows for the wait for its turn; 0 or less: it has missed it."""
    broker_id: Callable[[Q], int | None] = lambda request: None
    """The broker that it changes: one operation of a broker is under way at a time."""
    by_quorum: bool = False
    """Whether the decision depends on who is in the quorum when its turn comes: voters come and go."""
    wire: Wire | None = None

    def decided(self, controller: Controller, asked: Asked[Q]) -> Result[A]:
        """What the controller makes of a request; a KafkaError of the core is the refusal of all of it."""
        from klamm.controller.result import Result

        try:
            return self.decide(controller, asked)
        except KafkaError as error:
            return Result(self.refuse(asked.request, error.code, error.message))


MODULES: Final[Mapping[str, tuple[ApiKey, ...]]] = {
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS),
    "configs": (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    "features": (ApiKey.UPDATE_FEATURES,),
    "nodes": (
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
}
"""Where each operation is registered."""

_MODULE_OF: Final = {key: module for module, keys in MODULES.items() for key in keys}


def operations_in(module: str) -> dict[ApiKey, Operation[Any, Any]]:
    """What is registered in one of `MODULES`, by key."""
    values = vars(import_module(f"{__name__}.{module}")).values()
    return {one.api_key: one for one in values if isinstance(one, Operation)}


def operation_of(api_key: int) -> Operation[Any, Any] | None:
    """The operation of an API; None where the controller's core does not decide it."""
    module = _MODULE_OF.get(ApiKey(api_key))
    return None if module is None else operations_in(module)[ApiKey(api_key)]
