"""Kafka's frames on a socket: an int32 size, followed by that many bytes."""

from __future__ import annotations

import socket
import struct


def send_frame(peer: socket.socket, frame: bytes) -> None:
    """Send a complete frame."""
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def read_frame(peer: socket.socket) -> bytes:
    """The next frame, without its size."""
    (size,) = struct.unpack(">i", read_exactly(peer, 4))
    return read_exactly(peer, size)


def read_exactly(peer: socket.socket, count: int) -> bytes:
    """Read exactly that many bytes; asserts that they arrive."""
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        assert part, "the connection was closed"
        data += part
    return data
