"""The engine panics in a handler of a running node: the request is answered, and the connection serves the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import klamm
from klamm._engine.panics import panic_with
from klamm.broker.request import Handler, InlineHandler
from klamm.node.requests.handlers import BROKER_FAMILIES, CONTROLLER_FAMILIES, Handlers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import ErrorCode
from tests.support.messages import codes
from tests.support.raw_connection import RawConnection

INJECTED = "injected for the test"
TOPIC = "t"
REQUESTS: dict[int, tuple[int, dict[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: (9, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}),
}
"""Version and fields of APIs that need a topic; others are tested in the newest version with an item in each array."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        running.create_topic(TOPIC)
        yield running


def connect(cluster: klamm.Cluster, *, on_controller: bool) -> RawConnection:
    [name] = (name for name in cluster._node.listeners if (name == "CONTROLLER") == on_controller)
    return RawConnection(*cluster._node.listeners[name])


def fail(monkeypatch: pytest.MonkeyPatch, api_key: int, *, on_controller: bool) -> None:
    """The handlers of one kind of listener panic for this API."""
    find = Handlers.find

    def found(handlers: Handlers, asked: int, *, on_controller: bool) -> Handler | InlineHandler | None:
        handler = find(handlers, asked, on_controller=on_controller)
        return broken(handler) if (asked, on_controller) == failing else handler

    failing = (api_key, on_controller)
    monkeypatch.setattr(Handlers, "find", found)


def broken(handler: Handler | InlineHandler | None) -> Handler | InlineHandler:
    """A handler of the same kind, in which the engine panics."""
    assert handler is not None

    def panic(*_: object) -> None:
        panic_with(INJECTED)

    async def panic_later(*_: object) -> bytes:
        panic_with(INJECTED)
        return b""

    if isinstance(handler, InlineHandler):
        return InlineHandler(panic, panic if handler.take is not None else None)
    return panic_later


HANDLERS = [(False, key) for key in sorted(BROKER_FAMILIES)] + [(True, key) for key in sorted(CONTROLLER_FAMILIES)]


@pytest.mark.parametrize(
    ("on_controller", "api_key"),
    HANDLERS,
    ids=[f"{'controller' if on_controller else 'broker'}-{ApiKey(key).name}" for on_controller, key in HANDLERS],
)
def test_a_panic_in_a_handler_ends_its_request_alone(
    cluster: klamm.Cluster,
    on_controller: bool,
    api_key: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    version, values = REQUESTS.get(api_key, (None, None))
    with connect(cluster, on_controller=on_controller) as connection:
        with monkeypatch.context() as patch:
            fail(patch, api_key, on_controller=on_controller)
            answer = connection.ask(api_key, values, version)
        assert set(codes(answer)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        next_answer = connection.ask(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": 2 if on_controller else 1})
        assert next_answer.error_code == ErrorCode.NONE
    [record] = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == INJECTED
    assert "UNKNOWN_SERVER_ERROR" in record.getMessage()
