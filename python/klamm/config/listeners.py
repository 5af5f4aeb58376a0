"""Listeners as server.properties writes them: `NAME://host:port,...`, each name with its security protocol."""

from __future__ import annotations

import errno
import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klamm.protocol.value import Value

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARDS: Final = ("", "0.0.0.0", "::")

_OF_HOSTS: Final = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")
_DIGITS: Final = frozenset("0123456789")


class ListenerError(ValueError):
    """An invalid listener: the message says which one and why, without the configuration key."""


class Listener(Value):
    """An address to bind or to advertise. An empty host means every interface, port 0 a free one."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether it is bound on every interface."""
        return self.host in WILDCARDS


def check_ports(listeners: Iterable[Listener]) -> None:
    """Raises OSError for a port that is taken: before anything is changed that a node without it would not change."""
    for listener in listeners:
        if listener.port != 0:
            _check_port(listener)


def _check_port(listener: Listener) -> None:
    import socket  # Not at the top: printing the version does not need it.

    try:
        # As bytes, because Python would import a codec for names that are not ASCII.
        host = listener.host.encode() if listener.host.isascii() else listener.host
        found = socket.getaddrinfo(host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # As the engine binds: IPv4 first, and the first address that can be bound will do.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] is socket.AF_INET6)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise OSError(error.errno, f"cannot listen on {listener.host}:{listener.port}: {error.strerror}") from None


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` by name; names are upper case. Raises ListenerError."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ListenerError(f"'{entry}' is not NAME:PROTOCOL")
        if protocol not in PROTOCOLS:
            raise ListenerError(f"'{protocol}' is no security protocol: use one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol
    return protocols


def effective_protocols(
    protocols: Mapping[str, str], controller_names: Sequence[str], listeners: Sequence[str]
) -> dict[str, str]:
    """The map that holds when `listener.security.protocol.map` is not set: controllers are PLAINTEXT.

    As in Apache Kafka, that is not guessed as soon as a listener is named after TLS or SASL.
    """
    names = [*controller_names, *(entry.partition(":")[0].upper() for entry in listeners)]
    if any(name in PROTOCOLS and name != "PLAINTEXT" for name in names):
        return dict(protocols)
    return {**protocols, **dict.fromkeys(controller_names, "PLAINTEXT")}


def parse_listeners(
    entries: Iterable[str], protocols: Mapping[str, str], *, distinct_ports: bool = True
) -> tuple[Listener, ...]:
    """The listeners of a list value, checked against each other. Raises ListenerError."""
    listeners = tuple(_parse_listener(entry, protocols) for entry in entries)
    _check_names(listeners)
    if distinct_ports:
        _check_ports(listeners)
    return listeners


def _parse_listener(entry: str, protocols: Mapping[str, str]) -> Listener:
    name, host, port = _split(entry)
    name = name.upper()
    if name not in protocols:
        raise ListenerError(f"listener {name} has no security protocol: add it to listener.security.protocol.map")
    if not 0 <= port <= 65535:
        raise ListenerError(f"port {port} of '{entry}' is not within 0 and 65535")
    return Listener(name, protocols[name], host, port)


def _split(entry: str) -> tuple[str, str, int]:
    # Without a regular expression: making one takes longer than all else that is done with a configuration.
    name, slashes, address = entry.rpartition("://")
    host, colon, port = address.rpartition(":")
    host, digits = host.removeprefix("[").removesuffix("]"), port.removeprefix("-")
    is_split = bool(slashes and colon and digits) and "\n" not in name
    if not is_split or not _OF_HOSTS.issuperset(host) or not _DIGITS.issuperset(digits):
        raise ListenerError(f"'{entry}' is not NAME://host:port")
    return name, host, int(port)


def _check_names(listeners: Sequence[Listener]) -> None:
    for name, count in Counter(listener.name for listener in listeners).items():
        if count > 1:
            raise ListenerError(f"each listener must have a different name, but {count} are named {name}")


def _check_ports(listeners: Sequence[Listener]) -> None:
    """No two listeners share a port, except one with an IPv4 and one with an IPv6 address."""
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted((_ip_version(one.host) for one in sharing), key=str) != [4, 6]:
            names = ", ".join(map(str, sharing))
            raise ListenerError(f"each listener must have a different port, but {names} share port {port}")


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None
