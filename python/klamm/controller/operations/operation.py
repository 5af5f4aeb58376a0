"""An operation of the active controller: its API, its types and messages, what decides it and what refuses it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from klamm.controller.requester import Requester
from klamm.controller.result import Result
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.value import Value

if TYPE_CHECKING:
    from klamm.controller.decisions import Decisions

Q = TypeVar("Q")
A = TypeVar("A")


class PendingRequest(NamedTuple, Generic[Q]):
    """A request whose turn has come, and its context besides the controller's state."""

    request: Q
    api_version: int
    running_ms: Callable[[], int]
    """The time by which sessions are counted."""
    random_bytes: Callable[[int], bytes]
    """Returns the given number of random bytes."""
    now_ms: int = 0
    requester: Requester | None = None
    """Whose quota is charged; None for the cluster's own requests."""
    resolved_hosts: frozenset[str] = frozenset()
    """The hosts of the request, as `Operation.hosts` names them, that have an address."""


class Wire(Value):
    """The messages of an operation whose own types differ from the messages."""

    request: type[Any]
    response: type[Any]
    read_request: Callable[[Any], Any]
    write_request: Callable[[Any], Any]
    read_response: Callable[[Any, Any], Any]
    """Creates the answer from the operation's request and the message."""
    write_response: Callable[[Any, Any], Any]
    """Creates the message from the operation's request and its answer."""


class Operation(Value, Generic[Q, A]):
    """One operation."""

    api_key: ApiKey
    request: type[Q]
    response: type[A]
    decide: Callable[["Decisions", PendingRequest[Q]], Result[A]]
    refuse: Callable[[Q, ErrorCode, str | None], A]
    """The response to a request that fails as a whole; its form depends on the API."""
    timeout_ms: Callable[[Q], int] = lambda request: 1
    """How long the request may wait for its turn, in ms; 0 or less: it has expired."""
    broker_id: Callable[[Q], int | None] = lambda request: None
    """The broker that it changes: one operation of a broker is in progress at a time."""
    hosts: Callable[[Q], frozenset[str]] = lambda request: frozenset()
    """Names that are resolved before the decision, which depends on whether they have an address."""
    by_quorum: bool = False
    """Whether the decision depends on the current voters of the quorum."""
    wire: Wire | None = None

    def decided(self, decisions: "Decisions", asked: PendingRequest[Q]) -> Result[A]:
        """The decision for a request; a KafkaError rejects the whole request."""
        try:
            return self.decide(decisions, asked)
        except KafkaError as error:
            return Result(self.refuse(asked.request, error.code, error.message))
