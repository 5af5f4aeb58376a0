"""What frames go over to a broker: a socket of Python's, or one of the engine's where the keys ask for TLS or SASL.

The engine has both already, with the keys of the clients that it is for, so that a pipeline and its planning obey one
description of them. Python's own `ssl` would need a client's private key as a file.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from klamm._engine import BrokerLink

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_KEYS_OF_A_LINK: Final = ("client.id", "security.", "sasl.", "socket.connection.setup.timeout.ms", "ssl.")


class ClientError(Exception):
    """A message for a person: what went wrong and, where there is one, the way out."""


class UnreachableError(ClientError):
    """Nobody answers there: not yet, not any more, or not in time."""


class MistrustError(ClientError):
    """Client and broker do not trust each other, or the keys that say how are wrong: no broker is worth another try."""


class Channel(Protocol):
    """Frames without their lengths; ClientError."""

    def exchange(self, frame: bytes, timeout_s: float) -> bytes:
        """The answer's frame to a request's. After an error the channel is of no use."""

    def close(self) -> None:
        """Close the connection."""


def open_channel(host: str, port: int, timeout_s: float, config: Mapping[str, str]) -> Channel:
    """A connection to a broker, by the keys of Kafka's clients that are about connections; others are passed over."""
    if config.get("security.protocol", "PLAINTEXT").strip().upper() == "PLAINTEXT":
        return _Plain(host, port, timeout_s)
    return _Secured(host, port, timeout_s, config)


class _Plain:
    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._address = f"{host}:{port}"
        # As bytes: for text the first look-up imports what names beyond ASCII need.
        name = host.encode() if host.isascii() else host
        try:
            self._socket = socket.create_connection((name, port), timeout_s)  # type: ignore[arg-type]  # it takes both
        except OSError as error:
            raise UnreachableError(
                f"cannot connect to {self._address}: {_reason(error)}; is a broker running there?"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, frame: bytes, timeout_s: float) -> bytes:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            return self._read_frame()
        except TimeoutError:
            raise UnreachableError(f"the broker at {self._address} did not answer in time") from None
        except OSError as error:
            raise UnreachableError(f"the connection to {self._address} broke: {_reason(error)}") from None

    def close(self) -> None:
        self._socket.close()

    def _read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read_exactly(4))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise ClientError(
                f"{self._address} does not speak Kafka's protocol, or not without TLS (security.protocol)"
            )
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return bytes(data)


class _Secured:
    def __init__(self, host: str, port: int, timeout_s: float, config: Mapping[str, str]) -> None:
        from klamm import _engine

        keys = {key: value for key, value in config.items() if key.startswith(_KEYS_OF_A_LINK)}
        keys.setdefault("socket.connection.setup.timeout.ms", str(max(int(timeout_s * 1000), 1)))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._errors = _engine
        try:
            self._link: BrokerLink = _engine.BrokerLink(address, keys)
        except _engine.ConfigError as error:
            raise MistrustError(str(error)) from None
        except _engine.ClientError as error:
            raise self._described(error) from None

    def exchange(self, frame: bytes, timeout_s: float) -> bytes:
        try:
            return self._link.exchange(frame, timeout_s)
        except self._errors.ClientError as error:
            raise self._described(error) from None

    def close(self) -> None:
        self._link.close()

    def _described(self, error: Exception) -> ClientError:
        """Whether it is worth another try depends on whether one of both does not trust the other."""
        is_final = isinstance(error, self._errors.MistrustError)
        return MistrustError(str(error)) if is_final else UnreachableError(str(error))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
