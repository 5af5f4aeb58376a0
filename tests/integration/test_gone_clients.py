"""Clients disconnect while a request waits, with more requests unread after it: their sockets are closed."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

CLIENTS = 50
WAIT_MS = 600_000
UNREAD_BYTES = 100_000
"""More than the node reads ahead, and less than the socket buffers hold."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    overrides = {"group.initial.rebalance.delay.ms": str(WAIT_MS), "offsets.topic.num.partitions": "1"}
    with NodeProcess(tmp_path_factory.mktemp("gone") / "data", overrides=overrides) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for made in admin.create_topics([NewTopic("quiet", 1, 1)]).values():
            made.result()
        assert has_answer(running, find_coordinator(), bound_s=30), "which makes the topic of the offsets"
        yield running


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(payload)) + payload


def long_poll() -> bytes:
    partition = struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return frame(1, 4, struct.pack(">iiiibi", -1, WAIT_MS, 1, 1 << 20, 0, 1) + text("quiet") + partition)


def join() -> bytes:
    group = text("slow") + struct.pack(">ii", 60_000, WAIT_MS) + text("") + text("consumer")
    return frame(11, 2, group + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0))


def unread() -> bytes:
    one = frame(3, 1, struct.pack(">i", 0))
    return one * (UNREAD_BYTES // len(one))


def find_coordinator() -> bytes:
    return frame(10, 0, text("slow"))


def has_answer(node: NodeProcess, first: bytes, bound_s: float = 0.2) -> bool:
    """Whether the node answers that request immediately instead of holding it."""
    with socket.create_connection(("127.0.0.1", node.port)) as client:
        client.settimeout(bound_s)
        client.sendall(first)
        try:
            return bool(client.recv(1))
        except TimeoutError:
            return False


def descriptors(node: NodeProcess) -> int:
    return len(os.listdir(Path("/proc") / str(node.pid) / "fd"))


@pytest.mark.parametrize("is_reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize("waiting", [long_poll, join])
def test_their_sockets_are_closed(node: NodeProcess, waiting: Callable[[], bytes], is_reset: bool) -> None:
    wait_until(lambda: not has_answer(node, waiting()))
    before = descriptors(node)
    clients = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(CLIENTS)]
    wait_until(lambda: descriptors(node) > before + CLIENTS // 2)
    for client in clients:
        client.sendall(waiting() + unread())
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_until(lambda: descriptors(node) <= before)
