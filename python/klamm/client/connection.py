"""One connection to a broker for a caller that waits: a request, then its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from klamm._engine import BrokerConnection
from klamm.client import ClientError, ConfigError, ConnectError, SecurityError, UnsupportedVersionError
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import codec, kio_classes

__all__ = ["Connection", "Entity", "parse_bootstrap"]

CLIENT_ID: Final = "klamm-cli"
_KEYS: Final = ("client.id", "security.", "sasl.", "ssl.")

Entity = Any
"""An answer: one of kio's message classes, which share no base class."""
T = TypeVar("T")
K = TypeVar("K")


class Connection:
    """A connection that knows which versions its broker speaks. Close it, or use it in a `with`."""

    def __init__(self, host: str, port: int, timeout_s: float = 30, config: Mapping[str, str] | None = None) -> None:
        """Connects and asks for the broker's versions.

        `config`: keys of Kafka's clients; those that are not about connections are passed over. Raises ClientError,
        which is a SecurityError where the keys are wrong.
        """
        keys = {key: value for key, value in (config or {}).items() if key.startswith(_KEYS)}
        try:
            self._connection = BrokerConnection(host, port, {"client.id": CLIENT_ID, **keys}, timeout_s)
        except ConfigError as error:
            raise SecurityError(str(error)) from None
        except ConnectError as error:
            raise type(error)(f"{error}; is a broker running there?") from None
        self.address = f"{host}:{port}"
        self._timeout_s = timeout_s
        self.is_open = True
        """False once an exchange was not completed: what comes next on the connection is unknown."""

    def request(self, api_key: int, version_max: int, /, **values: object) -> Entity:
        """The answer, in the newest version that both sides know, up to `version_max`. Raises ClientError."""
        version = self.version(api_key, version_max)
        request = codec.build(kio_classes.request_class(api_key, version), **values)
        body = self._exchange(api_key, version, codec.encode_request(request))
        return self._readable(codec.decode_response, api_key, version, body)

    def ask(self, request: Any, answer: type[T], version_max: int, timeout_s: float | None = None) -> T:
        """The same with our own values: the answer to `request`, waited for as long as `timeout_s`, as `answer`."""
        version = self.version(request.API_KEY, version_max)
        body = self._exchange(request.API_KEY, version, codec.write_request(request, version), timeout_s)
        return self._readable(codec.read_response, answer, version, body)

    def version(self, api_key: int, version_max: int) -> int:
        """The version that `request` would use. Raises UnsupportedVersionError."""
        low, high = self._connection.versions.get(api_key, (0, -1))
        version = min(high, version_max)
        if version < low:
            raise UnsupportedVersionError(
                f"the broker at {self.address} does not offer API {api_key} in a version that klamm speaks"
            )
        return version

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, api_key: int, version: int, body: bytes, timeout_s: float | None = None) -> bytes:
        """The answer's body to a request's."""
        try:
            return self._connection.request(api_key, version, body, timeout_s or self._timeout_s)
        except BaseException:  # also Ctrl-C: the rest of an answer may be on its way
            self.close()
            raise

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
