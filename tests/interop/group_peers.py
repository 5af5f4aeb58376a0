"""Sends the same requests to two brokers, and replaces member ids by names, so that responses can be compared."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from klamm.protocol.errors import ErrorCode
from klamm.protocol.wire.codec import (
    decode_response,
    from_entity,
    write_request,
)
from klamm.protocol.wire.kio_classes import request_class
from tests.interop.apache_kafka import running
from tests.support.foreign import require
from tests.support.frames import read_frame, send_frame
from tests.support.node_process import NodeProcess

IGNORED = {"throttle_time_ms", "error_message"}
CLIENT_ID = b"client"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@contextlib.contextmanager
def both_running(folder: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Apache Kafka and klamm with these settings; their bootstrap addresses."""
    require("java", "mvn")
    with (
        running(folder / "kafka", CLUSTER_ID, settings) as kafka,
        NodeProcess(folder / "klamm", overrides=settings) as klamm,
    ):
        yield kafka.bootstrap, klamm.bootstrap


class Peer:
    """A broker, with connections by name, and the real member ids of the names."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._address = host, int(port)
        self._sockets: dict[str, socket.socket] = {}
        self.names: dict[str, str] = {}
        self.topic_ids: dict[bytes, str] = {}

    def send(self, connection: str, request: Any, version: int) -> None:
        """Send without waiting for the response."""
        request = self._translated(request)
        body = write_request(request, version)
        tags = b"\0" if request_class(request.API_KEY, version).__header_schema__.__version__ >= 2 else b""
        header = struct.pack(">hhih", request.API_KEY, version, 7, len(CLIENT_ID)) + CLIENT_ID + tags
        send_frame(self._socket(connection), header + body)

    def receive(self, connection: str, response: Any, version: int, *, timeout_s: float = 20) -> Any:
        """The next response on a connection, as our type."""
        channel = self._socket(connection)
        channel.settimeout(timeout_s)
        frame = read_frame(channel)
        flexible = request_class(response.API_KEY, version).__flexible__
        body = frame[5:] if flexible else frame[4:]
        return from_entity(response, decode_response(response.API_KEY, version, body))

    def is_silent(self, connection: str, for_s: float) -> bool:
        """Whether no response arrives for a while."""
        channel = self._socket(connection)
        channel.settimeout(for_s)
        try:
            return not channel.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True

    def _socket(self, name: str) -> socket.socket:
        if name not in self._sockets:
            self._sockets[name] = socket.create_connection(self._address)
        return self._sockets[name]

    def _translated(self, value: Any) -> Any:
        """The request with this broker's member ids and topic ids in place of names."""
        if isinstance(value, str):
            return self.names.get(value, value)
        if isinstance(value, bytes):
            return next((topic_id for topic_id, name in self.topic_ids.items() if name.encode() == value), value)
        if isinstance(value, tuple):
            return tuple(self._translated(item) for item in value)
        if dataclasses.is_dataclass(value):
            fields = {field.name: self._translated(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return type(value)(**fields)  # type: ignore[operator]
        return value

    def named(self, value: Any) -> Any:
        """A response as plain values, with names in place of ids, codes by name, and lists in a defined order."""
        known = {real: name for name, real in self.names.items()}
        if isinstance(value, ErrorCode):
            return value.name
        if isinstance(value, str):
            return known.get(value, value)
        if isinstance(value, bytes):
            return self.topic_ids.get(value, value)
        if isinstance(value, tuple):
            return sorted((self.named(item) for item in value), key=repr)
        if dataclasses.is_dataclass(value):
            names = (field.name for field in dataclasses.fields(value) if field.name not in IGNORED)
            return {name: self.named(getattr(value, name)) for name in names}
        return value


class Pair:
    """Apache Kafka and klamm."""

    def __init__(self, kafka: Peer, klamm: Peer) -> None:
        self.kafka = kafka
        self.klamm = klamm

    def send(self, connection: str, request: Any, version: int) -> None:
        """Send to both."""
        for peer in (self.kafka, self.klamm):
            peer.send(connection, request, version)

    def receive(self, connection: str, response: Any, version: int, *, name: str | None = None) -> dict[str, Any]:
        """The response of both, which must be equal; its member id is called `name` from now on."""
        answers = []
        for peer in (self.kafka, self.klamm):
            answer = peer.receive(connection, response, version)
            if name is not None and answer.member_id:
                peer.names.setdefault(name, answer.member_id)
            answers.append(peer.named(answer))
        assert answers[1] == answers[0], f"klamm: {answers[1]}\nApache Kafka: {answers[0]}"
        found: dict[str, Any] = answers[0]
        return found

    def ask(
        self, request: Any, response: Any, version: int, *, name: str | None = None, on: str = ""
    ) -> dict[str, Any]:
        """Send to both and compare the responses."""
        self.send(on, request, version)
        return self.receive(on, response, version, name=name)

    def both_wait(self, connection: str, for_s: float = 0.3) -> None:
        """Neither has responded yet."""
        assert self.kafka.is_silent(connection, for_s), "Apache Kafka has answered"
        assert self.klamm.is_silent(connection, for_s), "klamm has answered"
