"""A request as the engine hands it over, and what answers it."""

import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from klamm.protocol.principal import Principal
from klamm.protocol.value import Value

T = TypeVar("T")


class RequestContext(NamedTuple):
    """The context of a request for every step of the request pipeline and every handler, besides the body.

    `listener` is the listener's name, `address` the client's address without port; `on_controller` is true for a
    controller listener. `arrived_ms` and `deadline_ms` are times of `monotonic_ms`; after the deadline nothing more is
    tried for the request. A request in an envelope has the client id, principal and address of the client, and the
    connection and listener of the broker that sent the envelope (KIP-590).
    """

    connection_id: int
    api_key: int
    api_version: int
    client_id: str | None
    listener: str
    principal: Principal
    address: str
    on_controller: bool
    arrived_ms: int
    deadline_ms: int

    def time_left_ms(self) -> int:
        """Milliseconds until the deadline; negative after it."""
        return self.deadline_ms - monotonic_ms()


def monotonic_ms() -> int:
    """The clock of deadlines."""
    return time.monotonic_ns() // 1_000_000


Handler = Callable[[RequestContext, int, bytes], Coroutine[Any, Any, bytes]]
"""Takes the context, the API version and the body without header; gives the response's body without header.

Raises MalformedRequest for a body that does not follow its schema: the connection is closed.
"""


class Answer(Protocol):
    """Where a handler without a task leaves its answer."""

    def give(self, body: bytes) -> None:
        """Answer with this body, without header. Once, at once or later."""
        ...

    def written(self, write: Callable[[T], bytes]) -> Callable[[T], None]:
        """A callback that responds with the result of `write` for its value. If `write` fails, so does the request."""
        ...

    def fail(self, error: Exception) -> None:
        """Answer with the error response of a handler that raised this."""
        ...

    def leave_to(self, handler: Handler) -> None:
        """Let this handler answer the request, in a task; for what cannot be answered without."""
        ...


class InlineHandler(Value):
    """A handler of frequent requests, which runs without a task.

    It returns before or after it responds; it raises the errors of a `Handler`, and then does not respond.
    """

    handle: Callable[[RequestContext, int, bytes, Answer], None]
    take: Callable[[Any, Callable[[Any], None]], None] | None = None
    """The same for a request that the engine has read: takes that and a callback for what its `answer` is made of."""
