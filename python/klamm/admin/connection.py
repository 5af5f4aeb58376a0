"""One connection to a broker, as a client: a request goes out, its answer comes back. Blocking, one thing at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from klamm.admin.channel import Channel, ClientError, UnreachableError, open_channel
from klamm.protocol.api_key import ApiKey
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import codec, kio_classes

__all__ = ["ClientError", "Connection", "Entity", "UnreachableError", "parse_bootstrap"]

CLIENT_ID: Final = "klamm-cli"

Entity = Any
"""An answer: one of kio's message classes, which share no base class."""
T = TypeVar("T")
K = TypeVar("K")


class Connection:
    """A connection that knows which versions its broker speaks. Close it, or use it in a `with`."""

    def __init__(self, host: str, port: int, timeout_s: float = 30, config: Mapping[str, str] | None = None) -> None:
        """Connects and asks for the broker's versions. `config`: keys of Kafka's clients. Raises ClientError."""
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._timeout_s = timeout_s
        self.is_open = True
        """False once an exchange was not completed: what comes next on the connection is unknown."""
        self._channel: Channel = open_channel(host, port, timeout_s, config or {})
        try:
            self._versions = self._ask_versions()
        except BaseException:  # also Ctrl-C, and the error goes on
            self.close()
            raise

    def request(self, api_key: int, version_max: int, /, **values: object) -> Entity:
        """The answer, in the newest version that both sides know, up to `version_max`. Raises ClientError."""
        version = self._version(api_key, version_max)
        request = codec.build(kio_classes.request_class(api_key, version), **values)
        return self._readable(
            codec.decode_response, api_key, version, self._exchange(api_key, version, codec.encode_request(request))
        )

    def ask(self, request: Any, answer: type[T], version_max: int, timeout_s: float | None = None) -> T:
        """The same with our own values: the answer to `request`, waited for as long as `timeout_s`, as `answer`."""
        version = self._version(request.API_KEY, version_max)
        body = self._exchange(request.API_KEY, version, codec.write_request(request, version), timeout_s)
        return self._readable(codec.read_response, answer, version, body)

    def version(self, api_key: int, version_max: int) -> int:
        """The version that `request` would use."""
        return self._version(api_key, version_max)

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        # Version 0 is the one that every broker answers.
        request = codec.build(kio_classes.request_class(ApiKey.API_VERSIONS, 0))
        body = self._exchange(ApiKey.API_VERSIONS, 0, codec.encode_request(request))
        answer = self._readable(codec.decode_response, ApiKey.API_VERSIONS, 0, body)
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def _version(self, api_key: int, version_max: int) -> int:
        low, high = self._versions.get(api_key, (0, -1))
        version = min(high, version_max)
        if version < low:
            raise ClientError(
                f"the broker at {self.address} does not offer API {api_key} in a version that klamm speaks"
            )
        return version

    def _exchange(self, api_key: int, version: int, body: bytes, timeout_s: float | None = None) -> bytes:
        """The answer's body to a request's."""
        self._correlation_id += 1
        is_flexible = kio_classes.request_class(api_key, version).__header_schema__.__version__ >= 2
        frame = _header(api_key, version, self._correlation_id, is_flexible) + body
        try:
            answer = self._channel.exchange(frame, timeout_s or self._timeout_s)
        except BaseException:  # also Ctrl-C: the rest of an answer may be on its way
            self.close()
            raise
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id != self._correlation_id:
            raise ClientError(f"{self.address} answered another request: it does not speak Kafka's protocol")
        # The answer's header has tagged fields from version 1; ours never has any to read, a broker sends none.
        header_bytes = 4 if kio_classes.response_class(api_key, version).__header_schema__.__version__ == 0 else 5
        return answer[header_bytes:]

    def _readable(self, read: Callable[[K, int, bytes], T], what: K, version: int, body: bytes) -> T:
        try:
            return read(what, version, body)
        except MalformedRequest as error:
            raise ClientError(f"{self.address} sent an answer that cannot be read: {error}") from None


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,...`; the port may be missing and is then 9092. Raises ClientError."""
    addresses: list[tuple[str, int]] = []
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        host, colon, port = entry.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = entry, "9092"
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ClientError(f"'{entry}' is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientError("no bootstrap server: give --bootstrap host:port")
    return addresses


def _header(api_key: int, version: int, correlation_id: int, is_flexible: bool) -> bytes:
    client_id = CLIENT_ID.encode()
    fixed = struct.pack(f">hhih{len(client_id)}s", api_key, version, correlation_id, len(client_id), client_id)
    return fixed + b"\x00" if is_flexible else fixed
