"""Passes the engine's requests to handlers and responses back. Every request is answered, or its connection is closed.

An exception of a handler becomes the error response of the request: with the code of a KafkaError, otherwise with
UNKNOWN_SERVER_ERROR. The connection is closed only if no error response can be formed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Protocol, TypeVar

from klamm._engine.groups import CommitRequest
from klamm.broker.authorization import Authorizer, refusal
from klamm.broker.request import Handler, InlineHandler, RequestContext
from klamm.node.requests.handler_time import timed
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS, RAFT_APIS
from klamm.protocol.errors import ErrorCode, KafkaError, MalformedRequest

log = logging.getLogger("klamm.node.dispatch")

T = TypeVar("T")


class Answers(Protocol):
    """The engine's interface for responses."""

    @property
    def is_request_time_limited(self) -> bool:
        """Whether the time that handlers take counts for a quota of some client."""
        ...

    def note_handler_time(self, handle: int, ns: int) -> None:
        """A handler worked so long on the request, which is answered next."""
        ...

    @property
    def is_measuring_requests(self) -> bool:
        """Whether the error codes of responses are counted."""
        ...

    def note_error_codes(self, handle: int, counts: Sequence[tuple[int, int]]) -> None:
        """Count the error codes, each with its number, of a response that is sent next."""
        ...

    def answer(self, answers: Sequence[tuple[int, bytes | None]]) -> None:
        """Send the bodies, without headers, of requests by handle; None closes the connection."""
        ...


class Handlers(Protocol):
    """Finds the handler of an API."""

    def find(self, api_key: int, *, on_controller: bool) -> Handler | InlineHandler | None:
        """The handler of an API on a controller listener or on another one; None if it is not served there."""
        ...


class Dispatcher:
    """Runs a handler for each request, and passes the responses of one turn of the loop to the engine together."""

    def __init__(self, engine: Answers, handlers: Handlers, authorizer: Authorizer) -> None:
        self._engine = engine
        self._handlers = handlers
        self._authorizer = authorizer
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[int] = set()
        """The requests without a response yet."""
        self._asked_by_replicas: set[int] = set()
        self._measured: dict[int, tuple[int, int]] = {}
        """API key and version of requests whose error codes are counted."""
        self._all_answered: asyncio.Future[None] | None = None
        self._answers: list[tuple[int, bytes | None]] = []
        self._is_drained = False

    def dispatch(self, handle: int, context: RequestContext, body: bytes) -> None:
        """Start to answer a request. Does not block."""
        # Replicas send requests for as long as this replica takes part; a drain does not wait for them.
        is_replicas = context.on_controller and context.api_key in RAFT_APIS
        (self._asked_by_replicas if is_replicas else self._asked).add(handle)
        self._measure(handle, context.api_key, context.api_version)
        refused = refusal(self._authorizer, context, on_controller=context.on_controller)
        if refused is not None:
            self.answer(handle, _error_response(context, body, KafkaError(refused)))
            return
        handler = self._handlers.find(context.api_key, on_controller=context.on_controller)
        if isinstance(handler, InlineHandler):
            begun = self._begin()
            try:
                handler.handle(context, context.api_version, body, _InlineAnswer(self, handle, context, body))
            except Exception as error:  # every request is answered, also if its handler has a bug
                self.answer(handle, _error_response(context, body, error))
            self._end(handle, begun)
        elif handler is not None:
            self.run(handler, handle, context, body)
        else:
            # The engine passes only APIs that the node announced: see `Engine.serve`.
            log.error("no handler for API %d on listener %s: closing", context.api_key, context.listener)
            self.answer(handle, None)

    def commit(self, handle: int, peer: str, request: CommitRequest) -> None:
        """Start to answer an OffsetCommit that the engine has decoded. Does not block."""
        self._asked.add(handle)
        self._measure(handle, ApiKey.OFFSET_COMMIT, request.version)
        handler = self._handlers.find(ApiKey.OFFSET_COMMIT, on_controller=False)
        assert isinstance(handler, InlineHandler), "the handler of OffsetCommit is inline"
        assert handler.take is not None, "the engine decodes OffsetCommit"
        begun = self._begin()
        try:
            handler.take(request, partial(self._committed, handle, peer, request))
        except Exception as error:  # every request is answered, also if its handler has a bug
            self._not_committed(handle, peer, request, error)
        self._end(handle, begun)

    def _measure(self, handle: int, api_key: int, version: int) -> None:
        if self._engine.is_measuring_requests:
            self._measured[handle] = api_key, version

    def _count_errors(self, handle: int, body: bytes | None) -> None:
        api = self._measured.pop(handle, None)
        if api is not None and body is not None:
            from klamm.protocol.wire.codec import response_schema

            self._engine.note_error_codes(handle, response_schema(*api).error_codes(body))

    def _begin(self) -> int:
        """A handler that runs at once begins: the time, or 0 if it does not count."""
        return perf_counter_ns() if self._engine.is_request_time_limited else 0

    def _end(self, handle: int, begun: int) -> None:
        """The handler has returned before its response is sent. Work that it left for later is not counted."""
        if begun:
            self._engine.note_handler_time(handle, perf_counter_ns() - begun)

    def _committed(self, handle: int, peer: str, request: CommitRequest, codes: int | list[int]) -> None:
        try:
            self.answer(handle, request.answer(codes))
        except Exception as error:  # every request is answered, also if its handler has a bug
            self._not_committed(handle, peer, request, error)

    def _not_committed(self, handle: int, peer: str, request: CommitRequest, error: Exception) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("OffsetCommit v%d of %s failed: answered with %s", request.version, peer, code.name, exc_info=error)
        self.answer(handle, request.answer(code))

    def run(self, handler: Handler, handle: int, context: RequestContext, body: bytes) -> None:
        """Start to answer a request in a task."""
        if not self._is_drained:  # otherwise no task would wait for it
            self._tasks.add(asyncio.get_running_loop().create_task(self._run(handler, handle, context, body)))

    async def _run(self, handler: Handler, handle: int, context: RequestContext, body: bytes) -> None:
        answer: bytes | None = None
        try:
            work = handler(context, context.api_version, body)
            if self._engine.is_request_time_limited:
                work = timed(work, partial(self._engine.note_handler_time, handle))
            answer = await work
        except Exception as error:  # every request is answered, also if its handler has a bug
            answer = _error_response(context, body, error)
        finally:
            # A callback of the task would cost one more turn of the loop per request.
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)
            self.answer(handle, answer)

    def answer(self, handle: int, body: bytes | None) -> None:
        """Respond to a request, exactly once; None closes the connection."""
        if self._measured:
            self._count_errors(handle, body)
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._send)
        self._answers.append((handle, body))
        self._asked.discard(handle)
        self._asked_by_replicas.discard(handle)
        if self._all_answered is not None and not self._asked and not self._all_answered.done():
            self._all_answered.set_result(None)

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        try:
            self._engine.answer(answers)
        except Exception:  # a response that the engine cannot take must not keep the others from their clients
            log.exception("the engine did not take all of %d responses: each is passed again by itself", len(answers))
            for handle, body in answers:
                self._send_alone(handle, body)

    def _send_alone(self, handle: int, body: bytes | None) -> None:
        """Send a response unless it was sent; close the connection if the engine fails again. Never raises."""
        try:
            self._engine.answer([(handle, body)])
        except Exception:  # the responses after it are sent all the same
            log.exception("the engine did not take a response: closing its connection")
            with contextlib.suppress(Exception):
                self._engine.answer([(handle, None)])

    async def drain(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for the pending responses, then cancel the rest."""
        if self._asked:
            self._all_answered = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(self._all_answered, timeout_s)
            except TimeoutError:
                text = "%d requests were not answered within %g s: their connections are closed"
                log.warning(text, len(self._asked), timeout_s)
        self._is_drained = True
        for task in self._tasks:
            task.cancel()
        self._send()

    def refuse_replicas(self) -> None:
        """This replica leaves the quorum: close the connections of replicas whose requests are unanswered."""
        self._send()
        self._engine.answer([(handle, None) for handle in self._asked_by_replicas])
        self._asked_by_replicas.clear()


class _InlineAnswer:
    """The `Answer` of one request."""

    __slots__ = ("_body", "_context", "_dispatcher", "_handle")

    def __init__(self, dispatcher: Dispatcher, handle: int, context: RequestContext, body: bytes) -> None:
        self._dispatcher, self._handle, self._context, self._body = dispatcher, handle, context, body

    def give(self, body: bytes) -> None:
        self._dispatcher.answer(self._handle, body)

    def written(self, write: Callable[[T], bytes]) -> Callable[[T], None]:
        def take(value: T) -> None:
            try:
                body = write(value)
            except Exception as error:  # every request is answered, also if its handler has a bug
                self.fail(error)
            else:
                self.give(body)

        return take

    def fail(self, error: Exception) -> None:
        self._dispatcher.answer(self._handle, _error_response(self._context, self._body, error))

    def leave_to(self, handler: Handler) -> None:
        self._dispatcher.run(handler, self._handle, self._context, self._body)


def _error_response(context: RequestContext, body: bytes, error: Exception) -> bytes | None:
    """The response to a request whose handler raised; None if its connection must be closed. Logs the cause."""
    if isinstance(error, MalformedRequest):
        log.warning("closing connection of %s: %s", context.address, error)
        return None
    from klamm.protocol.wire.error_responses import error_response

    # A request that is refused as a whole is not a failure of this node.
    is_refused = isinstance(error, KafkaError)
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    try:
        answer = error_response(context.api_key, context.api_version, body, code)
    except Exception as no_response:  # the connection is closed instead
        answer, outcome = None, f"closing, because no error response can be formed: {no_response}"
    else:
        outcome = f"answered with {code.name}"
    key, version, address = context.api_key, context.api_version, context.address
    name = APIS[key].name if key in APIS else f"API {key}"
    if is_refused:
        log.info("%s v%d of %s refused: %s: %s", name, version, address, outcome, error)
    else:
        log.error("%s v%d of %s failed: %s", name, version, address, outcome, exc_info=error)
    return answer
