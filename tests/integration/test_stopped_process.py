"""A node whose process is stopped for longer than every session, and goes on: as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node_process import NodeProcess

SESSION_MS = 1_000
PAUSES = 3
SHORT = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "200",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", overrides=SHORT) as running:
        yield running


def pause(node: NodeProcess, ms: int) -> None:
    """Stop the process for so long."""
    os.kill(node.pid, signal.SIGSTOP)
    try:
        time.sleep(ms / 1_000)
    finally:
        os.kill(node.pid, signal.SIGCONT)


def result(made: dict[str, Future[None]]) -> None:
    for each in made.values():
        each.result(30)


def test_topics_are_created_and_brokers_shown_at_once(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for number in range(PAUSES):
        pause(node, 2 * SESSION_MS)
        result(admin.create_topics([NewTopic(f"after-{number}", 1, 1)]))
        assert list(admin.list_topics(timeout=30).brokers) == [1]
    assert "Fencing broker" not in node.log()
