"""A minimal broker, for tests of the bytes on the wire and of cases that no real broker produces."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from klamm.protocol.api_key import ApiKey
from klamm.protocol.wire import codec, kio_classes

Handler = Callable[[Any, int], Mapping[str, object]]
"""From a request and its version to the fields of the response."""


class FakeBroker:
    """Serves the given APIs on its own port, one connection after the other."""

    def __init__(self, handlers: Mapping[int, tuple[int, int, Handler]]) -> None:
        """`handlers`: by API key, the lowest and highest version, and the handler."""
        self.handlers = handlers
        self.requests: list[tuple[int, int, Any]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self._server.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                (size,) = struct.unpack(">i", head)
                answer = self.answer(stream.read(size))
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def answer(self, frame: bytes) -> bytes:
        """The response frame for a request frame."""
        api_key, version, correlation_id, client_id_length = struct.unpack_from(">hhih", frame)
        request_class = kio_classes.request_class(api_key, version)
        response_class = kio_classes.response_class(api_key, version)
        start = 10 + client_id_length + (1 if request_class.__header_schema__.__version__ >= 2 else 0)
        request = codec.decode_request(api_key, version, frame[start:])
        self.requests.append((api_key, version, request))
        fields = self._versions() if api_key == ApiKey.API_VERSIONS else self.handlers[api_key][2](request, version)
        tags = b"\x00" if response_class.__header_schema__.__version__ >= 1 else b""
        return struct.pack(">i", correlation_id) + tags + codec.encode(codec.build(response_class, **fields))

    def _versions(self) -> Mapping[str, object]:
        keys = [
            {"api_key": key, "min_version": low, "max_version": high} for key, (low, high, _) in self.handlers.items()
        ]
        return {"error_code": 0, "api_keys": keys}
