"""The two phases of a start: responses in the first, requests that wait for the second, and what a failure leaves."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Final

import pytest
from tests.support.node_process import METADATA
from tests.support.ports import free_port

from klamm._engine.metadata import Image
from klamm._engine.quorum import StorageError
from klamm.config.node_config import NodeConfig
from klamm.config.rules import checked
from klamm.config.sources import embedded_default
from klamm.embedded.cluster import Cluster
from klamm.formats.directories import METADATA_FOLDER
from klamm.formats.storage import format_blank
from klamm.node.boot import Booting
from klamm.node.node import Node

TIMEOUT_S: Final = 30
# Version 3, of a client "a" in version "b"; the response ends with the features.
VERSIONS_WITH_FEATURES: Final = b"\0\0\0\x10" + b"\0\x12\0\3" + b"\0\0\0\1" + b"\xff\xff\0" + b"\2a\2b\0"


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    """The configuration of a node that ran and was stopped."""
    Cluster(tmp_path / "data").close()
    return checked(embedded_default(tmp_path / "data", free_port(), "127.0.0.1"))


def files(folder: Path) -> dict[Path, bytes]:
    """All files except the lock file: closing it in this process would release the lock."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def connect(config: NodeConfig) -> socket.socket:
    """A connection, once the listener is bound."""
    (listener,) = config.client_listeners
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection((listener.host, listener.port), TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    """A response without its length; empty when the connection was closed."""
    length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(length, socket.MSG_WAITALL)


async def serve_one(node: Node, client: socket.socket) -> bytes:
    await node.start()
    try:
        return await asyncio.to_thread(answer, client)
    finally:
        await node.stop()


def test_api_versions_are_served_first_and_other_requests_wait(config: NodeConfig) -> None:
    booting = Booting(config)
    with connect(config) as client, connect(config) as other:
        assert b"metadata.version" in ask(client, VERSIONS_WITH_FEATURES)
        client.sendall(METADATA)
        assert b"metadata.version" in ask(other, VERSIONS_WITH_FEATURES)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        client.settimeout(TIMEOUT_S)

        async def serve() -> bytes:
            return await serve_one(Node(config, booting), client)

        assert asyncio.run(serve())[:4] == b"\0\0\0\1"


def test_an_empty_folder_serves_nothing_in_the_first_phase(tmp_path: Path) -> None:
    config = checked(embedded_default(tmp_path / "data", free_port(), "127.0.0.1"))
    format_blank(config)
    booted = Booting(config).finish()
    assert booted.whole is None
    assert booted.snapshot == (Image(), 0)
    with connect(config) as client:
        client.sendall(VERSIONS_WITH_FEATURES)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
    booted.log.close()
    booted.engine.shutdown(-1)
    booted.locks.release()


def test_the_image_is_that_of_snapshot_and_log(config: NodeConfig) -> None:
    booted = Booting(config).finish()
    snapshot, applied = booted.snapshot
    assert booted.whole == (booted.log.replay(snapshot, applied, booted.log.end_offset), booted.log.end_offset)
    booted.log.close()
    booted.engine.shutdown(booted.engine.previous_broker_epoch)
    booted.locks.release()


def test_an_abandoned_boot_changes_nothing(config: NodeConfig) -> None:
    before = files(config.metadata_log_dir)
    for _ in range(2):
        booting = Booting(config)
        with connect(config) as client:
            ask(client, VERSIONS_WITH_FEATURES)
            booting.abandon()
            booting.abandon()
            assert answer(client) == b""
        assert files(config.metadata_log_dir) == before


def test_a_start_that_fails_after_the_first_response_changes_nothing(config: NodeConfig) -> None:
    (config.metadata_log_dir / METADATA_FOLDER / "quorum-state").write_text("not JSON")
    before = files(config.metadata_log_dir)
    booting = Booting(config)

    async def start() -> None:
        await Node(config, booting).start()

    with connect(config) as client:
        ask(client, VERSIONS_WITH_FEATURES)
        with pytest.raises(StorageError, match="quorum-state"):
            asyncio.run(start())
        assert answer(client) == b""
    assert files(config.metadata_log_dir) == before


def test_a_boot_that_fails_leaves_nothing_behind(config: NodeConfig) -> None:
    snapshot = config.metadata_log_dir / METADATA_FOLDER / f"{9:020}-{1:010}.checkpoint"
    snapshot.write_bytes(b"not a snapshot")
    before = files(config.metadata_log_dir)
    for _ in range(2):
        with pytest.raises(StorageError, match=snapshot.name):
            Booting(config).finish()
    assert files(config.metadata_log_dir) == before
