"""What clients ask of a broker and the active controller answers: handed on with who asked and from where (KIP-590)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm.broker.request import Answer, Handler, RequestContext
from klamm.node.controller.active_controller import ActiveController
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.wire import codec

if TYPE_CHECKING:
    from klamm.client.peer import Address
    from klamm.controller.driver import ControllerDriver

T = TypeVar("T")

CONNECTIONS_MAX: Final = 16
"""To the active controller, which takes one request at a time of each, and commits together what it has taken."""

QUORUM_APIS: Final = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
"""Those that raft answers, with its own code for not being the leader."""


class Forwarder:
    """Gives clients' requests to the active controller, in this process or another."""

    def __init__(self, active: ActiveController, handler_here: Callable[[int], Handler | None]) -> None:
        """`handler_here` finds what answers an API where the controller of this process is the active one."""
        self._active, self._handler_here = active, handler_here

    def forward_inline(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Without a task to another process's controller that is known; what needs more is left to `forward`."""
        address = self._active.elsewhere
        if address is None:
            answer.leave_to(self.forward)
            return
        from klamm.node.requests.remote_forwarding import ForwardedRequest

        peer = self._active.client.idlest_peer(address, CONNECTIONS_MAX)
        forwarded = ForwardedRequest(context, version, body, answer, self.forward)
        forwarded.ask(peer, lambda on_other: self._active.watch(address, on_other))

    async def forward(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The body of the answer, by the request's deadline. Raises MalformedRequest: the client is disconnected."""

        async def here(controller: ControllerDriver) -> bytes | None:
            handler = self._handler_here(context.api_key)
            assert handler is not None, f"API {context.api_key} is a controller's"
            return await answer_while_active(controller, handler, context, version, body)

        async def elsewhere(address: Address, timeout_ms: int) -> bytes | None:
            from klamm.node.requests.remote_forwarding import forward_to

            return await forward_to(
                self._active.client.idlest_peer(address, CONNECTIONS_MAX), context, version, body, timeout_ms
            )

        answer = await self._active.until_answered(here, elsewhere, context.time_left_ms())
        if answer is not None:
            return answer
        from klamm.node.requests.remote_forwarding import refused

        text = f"No active controller answered within {context.deadline_ms - context.arrived_ms} ms."
        return refused(context.api_key, version, body, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    async def ask(self, context: RequestContext, version: int, request: Any, answer: type[T]) -> T:
        """The same for a request of which this broker has answered a part."""
        body = await self.forward(context, version, codec.write_request(request, version))
        return codec.read_response(answer, version, body)


async def answer_while_active(
    controller: ControllerDriver, handler: Handler, context: RequestContext, version: int, body: bytes
) -> bytes | None:
    """What the handler answers; None where that says that this controller is not the active one, or not any more."""
    epoch = controller.epoch
    if epoch is None:
        return None
    answer = await handler(context, version, body)
    if controller.epoch != epoch and _names(codec.decode_response(context.api_key, version, answer), _of(context)):
        return None
    return answer


def _of(context: RequestContext) -> ErrorCode:
    """The code by which an answer says so."""
    is_quorums = context.api_key in QUORUM_APIS
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_quorums else ErrorCode.NOT_CONTROLLER


def _names(answer: object, code: ErrorCode) -> bool:
    """Whether an error code anywhere in a message is this one."""
    if isinstance(answer, tuple):
        return any(_names(item, code) for item in answer)
    if not is_dataclass(answer):
        return False
    values = ((field.name, getattr(answer, field.name)) for field in fields(answer))
    return any(value == code if name == "error_code" else _names(value, code) for name, value in values)
