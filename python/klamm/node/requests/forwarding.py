"""Forwards clients' requests to the active controller, with the client's principal and address (KIP-590)."""

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
"""To the active controller. It handles one request of a connection at a time, and commits those of all together."""

QUORUM_APIS: Final = (ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
"""The APIs that raft answers, with its own error code for a node that is not the leader."""


class Forwarder:
    """Passes clients' requests to the active controller, in this process or in another."""

    def __init__(self, active: ActiveController, handler_here: Callable[[RequestContext], Handler | None]) -> None:
        """`handler_here` finds the handler of a request while the controller of this process is active."""
        self._active, self._handler_here = active, handler_here

    def forward_inline(self, context: RequestContext, version: int, body: bytes, answer: Answer) -> None:
        """Forward to a known controller of another process without a task; leave all other cases to `forward`."""
        address = self._active.remote_address
        if address is None:
            answer.leave_to(self.forward)
            return
        from klamm.node.requests.remote_forwarding import ForwardedRequest

        peer = self._active.client.idlest_peer(address, CONNECTIONS_MAX)
        forwarded = ForwardedRequest(context, version, body, answer, self.forward)
        forwarded.ask(peer, lambda on_new_leader: self._active.watch(address, on_new_leader))

    async def forward(self, context: RequestContext, version: int, body: bytes) -> bytes:
        """The response body, before the request's deadline. Raises MalformedRequest, which disconnects the client."""

        async def here(controller: ControllerDriver) -> bytes | None:
            handler = self._handler_here(context)
            assert handler is not None, f"API {context.api_key} is an API of the controller"
            return await answer_while_active(controller, handler, context, version, body)

        async def remote(address: Address, timeout_ms: int) -> bytes | None:
            from klamm.node.requests.remote_forwarding import forward_to

            return await forward_to(
                self._active.client.idlest_peer(address, CONNECTIONS_MAX), context, version, body, timeout_ms
            )

        answer = await self._active.until_answered(here, remote, context.time_left_ms())
        if answer is not None:
            return answer
        from klamm.node.requests.remote_forwarding import refused

        text = f"No active controller answered within {context.deadline_ms - context.arrived_ms} ms."
        return refused(context.api_key, version, body, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    async def ask(self, context: RequestContext, version: int, request: Any, answer: type[T]) -> T:
        """The same for a request that this broker has already answered in part."""
        body = await self.forward(context, version, codec.write_request(request, version))
        return codec.read_response(answer, version, body)


async def answer_while_active(
    controller: ControllerDriver, handler: Handler, context: RequestContext, version: int, body: bytes
) -> bytes | None:
    """The handler's response; None if it says that this controller is not active, or is not active any more."""
    epoch = controller.epoch
    if epoch is None:
        return None
    answer = await handler(context, version, body)
    if controller.epoch != epoch and _contains_error(
        codec.decode_response(context.api_key, version, answer), _of(context)
    ):
        return None
    return answer


"""The error code of the API for a node that is not the active controller."""


def _of(context: RequestContext) -> ErrorCode:
    """The code by which an answer says so."""
    is_quorums = context.api_key in QUORUM_APIS
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_quorums else ErrorCode.NOT_CONTROLLER


"""Whether the message contains this error code anywhere."""


def _contains_error(answer: object, code: ErrorCode) -> bool:
    """Whether an error code anywhere in a message is this one."""
    if isinstance(answer, tuple):
        return any(_contains_error(item, code) for item in answer)
    if not is_dataclass(answer):
        return False
    values = ((field.name, getattr(answer, field.name)) for field in fields(answer))
    return any(value == code if name == "error_code" else _contains_error(value, code) for name, value in values)
