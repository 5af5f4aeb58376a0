"""Flink's exactly-once sink on three brokers, while brokers and the whole job are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.applications.cluster import (
    PARTITIONS,
    PATIENCE_S,
    Numbers,
    bootstrap,
    committed,
    create_topics,
    while_brokers_die,
)
from tests.interop.applications.processes import Transfer
from tests.support.broker_processes import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def values(servers: str, topic: str) -> Counter[str]:
    """How often a read_committed consumer finds each value."""
    return Counter(value for found in committed(servers, topic, PARTITIONS).values() for value in found)


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_a_job_copies_every_record_once(brokers: list[BrokerProcess], tmp_path: Path, naming: str) -> None:
    """`naming`: how the sink finds open transactions of its previous process (FLIP-511)."""
    servers = bootstrap(brokers)
    create_topics(servers, input=PARTITIONS, output=PARTITIONS)
    numbers, job = Numbers(servers, "input"), Transfer(servers, tmp_path, naming)

    def log() -> str:
        return job.log()[-6000:]

    def grows() -> None:
        count = values(servers, "output").total()
        wait_until(lambda: values(servers, "output").total() > count + 200, log, bound_s=PATIENCE_S)

    try:
        job.start()

        def between(_: int) -> None:
            grows()
            job.kill()
            job.start()
            grows()

        while_brokers_die(brokers, between)
        numbers.stop()
        written = values(servers, "input")
        wait_until(lambda: values(servers, "output") >= written, log, bound_s=PATIENCE_S)
    finally:
        numbers.stop()
        job.kill()
    assert values(servers, "output") == written
