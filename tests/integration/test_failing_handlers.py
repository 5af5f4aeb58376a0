"""A handler of a running node raises: its request is answered, and the connection serves the next one."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

import klamm
from klamm.broker.request import Handler, InlineHandler
from klamm.node.requests.handlers import BROKER_FAMILIES, Handlers
from klamm.protocol.api_key import ApiKey
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import build, decode_response, encode_request
from klamm.protocol.wire.kio_classes import request_class
from tests.support.frames import read_frame, send_frame
from tests.support.messages import codes, request_with_items

INJECTED = "injected for the test"
TOPIC = "t"
REQUESTS: dict[int, tuple[int, dict[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: (9, {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}),
}
"""Version and fields where a topic has to exist; of other APIs the newest version, with one item in each array."""


class InjectedError(Exception):
    """What a handler raises."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[klamm.Cluster]:
    with klamm.Cluster() as running:
        running.create_topic(TOPIC)
        yield running


class Connection:
    """Asks one request after the other on one socket."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int) -> Any:
        """The answer to a request of this API."""
        version, values = REQUESTS.get(api_key, (APIS[api_key].versions[1], None))
        request = request_class(api_key, version)
        body = request_with_items(request) if values is None else build(request, **values)
        header = struct.pack(">hhih", api_key, version, 7, -1)
        if request.__header_schema__.__version__ >= 2:
            header += b"\0"
        send_frame(self._socket, header + encode_request(body))
        frame = read_frame(self._socket)
        assert frame[:4] == struct.pack(">i", 7), "the answer to this request"
        return decode_response(api_key, version, frame[5:] if request.__flexible__ else frame[4:])


def fail(monkeypatch: pytest.MonkeyPatch, api_key: int) -> None:
    """The handlers of clients raise for this API."""
    find = Handlers.find

    def found(handlers: Handlers, asked: int, *, on_controller: bool) -> Handler | InlineHandler | None:
        handler = find(handlers, asked, on_controller=on_controller)
        if asked != api_key or on_controller:
            return handler
        return broken(handler)

    monkeypatch.setattr(Handlers, "find", found)


def broken(handler: Handler | InlineHandler | None) -> Handler | InlineHandler:
    """A handler of the same kind, which raises."""
    assert handler is not None

    def raise_it(*_: object) -> NoReturn:
        raise InjectedError(INJECTED)

    async def raise_later(*_: object) -> bytes:
        raise InjectedError(INJECTED)

    if isinstance(handler, InlineHandler):
        return InlineHandler(raise_it, raise_it if handler.take is not None else None)
    return raise_later


@pytest.mark.parametrize("api_key", sorted(BROKER_FAMILIES))
def test_a_handler_that_raises_ends_its_request_alone(
    cluster: klamm.Cluster, api_key: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(Connection(cluster.bootstrap_servers)) as connection:
        with monkeypatch.context() as patch:
            fail(patch, api_key)
            answer = connection.ask(api_key)
        assert set(codes(answer)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert connection.ask(ApiKey.DESCRIBE_CLUSTER).error_code == ErrorCode.NONE
    [record] = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == INJECTED
    assert "UNKNOWN_SERVER_ERROR" in record.getMessage()
