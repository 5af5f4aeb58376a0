"""A blocking connection to a broker: send a request, wait for its response."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from klamm._engine.client import BrokerConnection
from klamm.client import ClientError, ConfigError, ConnectError, SecurityError, UnsupportedVersionError
from klamm.protocol.errors import MalformedRequest
from klamm.protocol.wire import codec

CLIENT_ID: Final = "klamm-cli"
_KEYS: Final = ("client.id", "security.", "sasl.", "ssl.")

Address = tuple[str, int]
"""Host and port."""
T = TypeVar("T")


class Connection:
    """A connection that knows the API versions of its broker. Close it, or use it in a `with`."""

    def __init__(self, host: str, port: int, timeout_s: float = 30, config: Mapping[str, str] | None = None) -> None:
        """Connects and requests the broker's API versions.

        `config`: keys of Kafka's clients; keys that do not concern connections are ignored. Raises ClientError, or its
        subclass SecurityError if the security keys are invalid.
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
        """False after an incomplete exchange: the next bytes on the connection are unknown."""

    def ask(self, request: Any, answer: type[T], version_max: int, timeout_s: float | None = None) -> T:
        """Send one of our request values and return the response as an `answer`, within `timeout_s`.

        It uses the newest version that both sides support, up to `version_max`. Raises ClientError.
        """
        version = self.version(request.API_KEY, version_max)
        body = self._exchange(request.API_KEY, version, codec.write_request(request, version), timeout_s)
        try:
            return codec.read_response(answer, version, body)
        except MalformedRequest as error:
            raise ClientError(f"{self.address} sent a response that cannot be decoded: {error}") from None

    def version(self, api_key: int, version_max: int) -> int:
        """The version that `ask` would use. Raises UnsupportedVersionError."""
        low, high = self._connection.versions.get(api_key, (0, -1))
        version = min(high, version_max)
        if version < low:
            raise UnsupportedVersionError(
                f"the broker at {self.address} does not support API {api_key} in a version that klamm supports"
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
        """The body of the response."""
        try:
            return self._connection.request(api_key, version, body, timeout_s or self._timeout_s)
        except BaseException:  # also Ctrl-C: the rest of a response may be in transit
            self.close()
            raise


def parse_bootstrap(text: str) -> list[Address]:
    """Parse `host:port,...`; the default port is 9092. Raises ClientError."""
    addresses: list[Address] = []
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
