"""Kafka's frames on a socket: a size, int32, and so many bytes."""

from __future__ import annotations

import socket
import struct


def send_frame(peer: socket.socket, frame: bytes) -> None:
    """Send it whole."""
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def read_frame(peer: socket.socket) -> bytes:
    """The next one, without its size."""
    (size,) = struct.unpack(">i", read_exactly(peer, 4))
    return read_exactly(peer, size)


def read_exactly(peer: socket.socket, count: int) -> bytes:
    """So many bytes; it is an assertion that they come."""
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        assert part, "the connection was closed"
        data += part
    return data
