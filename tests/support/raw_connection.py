"""Requests of any API on one connection, without retries."""

from __future__ import annotations

import socket
import struct
from typing import Any

from klamm.protocol.apis import APIS
from klamm.protocol.wire.codec import build, decode_response, encode
from klamm.protocol.wire.kio_classes import request_class

from .frames import read_frame, send_frame
from .messages import request_with_items


class RawConnection:
    """Sends one request after the other on one socket."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api_key: int, values: dict[str, Any] | None = None, version: int | None = None) -> Any:
        """The response to a request of this API; without `values`, the request has one item in each array."""
        if version is None:
            version = APIS[api_key].versions[1]
        request = request_class(api_key, version)
        body = request_with_items(request) if values is None else build(request, **values)
        header = struct.pack(">hhih", api_key, version, 7, -1)
        if request.__header_schema__.__version__ >= 2:
            header += b"\0"
        send_frame(self._socket, header + encode(body))
        frame = read_frame(self._socket)
        assert frame[:4] == struct.pack(">i", 7), "the answer to this request"
        return decode_response(api_key, version, frame[5:] if request.__flexible__ else frame[4:])
