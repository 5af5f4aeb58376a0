"""No memory for the input of a peer: only its own connection ends (`RLIMIT_AS` of the node's process)."""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.node_process import METADATA, NodeProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")

LEFT_BYTES = 96 << 20
"""How much the node may allocate beyond what it uses once it serves."""
FRAME_BYTES = 90 << 20
CONNECTIONS = 12


def address_space(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node with a topic and all its threads, whose address space is nearly exhausted."""
    with NodeProcess(tmp_path / "data") as running:
        write(running, 100)
        limit = address_space(running.pid) + LEFT_BYTES
        resource.prlimit(running.pid, resource.RLIMIT_AS, (limit, limit))
        yield running


def write(node: NodeProcess, count: int) -> None:
    """Produce records that are acknowledged."""
    acknowledged = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce("t", b"%d" % number, on_delivery=lambda error, message: acknowledged.append(error))
    assert producer.flush(60) == 0
    assert acknowledged == [None] * count


def send_large_frame(node: NodeProcess, api_key: int, version: int) -> bool:
    """Send the beginning of a frame that keeps growing; returns whether the node closed the connection."""
    head = (
        FRAME_BYTES.to_bytes(4, "big") + api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
    )
    with socket.create_connection(("127.0.0.1", node.port), 30) as connection:
        connection.settimeout(60)
        piece = bytes(1 << 20)
        try:
            connection.sendall(head)
            for _ in range(FRAME_BYTES >> 20):
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1) == b""
        except (ConnectionError, TimeoutError) as error:
            return not isinstance(error, TimeoutError)


@pytest.mark.parametrize(("api_key", "version"), [(0, 9), (19, 4)], ids=["produce", "create topics"])
def test_a_frame_that_does_not_fit_into_memory_closes_its_connection(
    node: NodeProcess, api_key: int, version: int
) -> None:
    """For a request that the engine serves, and one that is copied for Python."""
    closed: list[bool] = []
    senders = [
        threading.Thread(target=lambda: closed.append(send_large_frame(node, api_key, version)))
        for _ in range(CONNECTIONS)
    ]
    for sender in senders:
        sender.start()
    while any(sender.is_alive() for sender in senders):
        write(node, 10)
        with contextlib.suppress(RuntimeError):
            senders[0].join(0.01)
    for sender in senders:
        sender.join()
    assert closed == [True] * CONNECTIONS
    assert node.is_running, node.log()
    lines = [line for line in node.log().splitlines() if "no memory for" in line]
    assert lines, node.log()
    write(node, 100)
    wait_until(lambda: node.answers(METADATA))


def test_a_batch_that_decompresses_to_more_than_the_memory(node: NodeProcess) -> None:
    """Its request fails; the same connection and the others are still served."""
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "compression.type": "zstd",
            "message.max.bytes": 1_000_000_000,
            "retries": 0,
            "log_level": 0,
        }
    )
    errors: list[object] = []
    producer.produce("t", bytes(100 << 20), on_delivery=lambda error, message: errors.append(error))
    assert producer.flush(60) == 0
    [error] = errors
    assert error is not None
    assert node.is_running, node.log()
    write(node, 100)
