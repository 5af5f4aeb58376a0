"""The cluster for the applications."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.applications.cluster import SETTINGS
from tests.support.broker_processes import BrokerProcess, created
from tests.support.waiting import wait_until


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Three nodes of both roles. Topics have three replicas and min.insync.replicas 2."""
    with contextlib.ExitStack() as stack:
        nodes = [BrokerProcess(files) for files in created(tmp_path / "cluster", 3, SETTINGS)]
        for node in nodes:
            node.launch()
            stack.callback(node.kill)
        for node in nodes:
            wait_until(node.answers_metadata, bound_s=60)
        yield nodes
