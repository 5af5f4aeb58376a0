"""A node whose process is stopped for longer than every session resumes as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.frames import read_frame, send_frame
from tests.support.node_process import NodeProcess
from tests.support.waiting import wait_until

SESSION_MS = 1_000
MEMBER_SESSION_MS = 3_000
PAUSES = 3
GROUP = "patient"
SHORT = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", overrides=SHORT) as running:
        yield running


@contextlib.contextmanager
def stopped(node: NodeProcess) -> Iterator[None]:
    """The process is stopped within the block."""
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


def result(made: dict[str, Future[None]]) -> None:
    for each in made.values():
        each.result(30)


def test_topics_are_created_and_brokers_listed_at_once(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for number in range(PAUSES):
        with stopped(node):
            time.sleep(2 * SESSION_MS / 1_000)
        result(admin.create_topics([NewTopic(f"after-{number}", 1, 1)]))
        assert list(admin.list_topics(timeout=30).brokers) == [1]
    assert "Fencing broker" not in node.log()


class Member:
    """A member of a group that does not give up; real clients end their own session without a response."""

    def __init__(self, node: NodeProcess) -> None:
        self._peer = socket.create_connection(("127.0.0.1", node.port))
        self._peer.settimeout(30)
        self._generation, self._id = -1, ""

    def _send(self, api_key: int, version: int, body: bytes) -> None:
        send_frame(self._peer, struct.pack(">hhih", api_key, version, 1, -1) + body)

    def _receive(self) -> bytes:
        return read_frame(self._peer)[4:]  # after the correlation id

    def finds_its_coordinator(self) -> bool:
        self._send(10, 0, _text(GROUP))
        return self._receive()[:2] == b"\0\0"

    def joins(self) -> bool:
        body = _text(GROUP) + struct.pack(">ii", MEMBER_SESSION_MS, 60_000) + _text("") + _text("consumer")
        self._send(11, 2, body + struct.pack(">i", 1) + _text("range") + struct.pack(">i", 0))
        answer = self._receive()
        error, self._generation = struct.unpack_from(">hi", answer, 4)
        leader_at = 10 + _text_size(answer, 10)
        id_at = leader_at + _text_size(answer, leader_at)
        self._id = answer[id_at + 2 : id_at + _text_size(answer, id_at)].decode()
        return bool(error == 0)

    def syncs(self) -> bool:
        self._send(14, 1, self._identity() + struct.pack(">i", 0))
        return self._receive()[4:6] == b"\0\0"

    def beats(self) -> None:
        self._send(12, 1, self._identity())

    def is_known(self) -> bool:
        """Whether the heartbeat response says that the member is known."""
        return self._receive()[4:6] == b"\0\0"

    def _identity(self) -> bytes:
        return _text(GROUP) + struct.pack(">i", self._generation) + _text(self._id)

    def close(self) -> None:
        self._peer.close()


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _text_size(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">h", data, at)[0]) + 2


def test_a_member_of_a_group_stays(node: NodeProcess) -> None:
    member = Member(node)
    wait_until(member.finds_its_coordinator)
    wait_until(member.joins)
    assert member.syncs()
    for _ in range(PAUSES):
        with stopped(node):
            time.sleep((MEMBER_SESSION_MS + 500) / 1_000)
            member.beats()
        assert member.is_known()
    member.close()
    assert "the session of member" not in node.log()
