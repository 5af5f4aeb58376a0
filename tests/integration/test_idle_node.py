"""An idle node writes to its metadata log only when there are other replicas."""

from __future__ import annotations

import time

import klamm
from klamm.admin.quorum import QuorumClient
from tests.support.waiting import wait_until

QUORUM = "klamm.raft:type=MetadataLog,name="
OFTEN = {
    "metadata.max.idle.interval.ms": "10",
    "broker.session.timeout.ms": "800",
    "broker.heartbeat.interval.ms": "50",
}
LOOK_S = 1.0
"""A hundred times the interval."""


def test_a_node_alone_in_its_quorum_writes_nothing() -> None:
    with klamm.Cluster(flush=True, config=OFTEN) as cluster:
        wait_until(cluster.registered_controllers)  # the last record of a start
        wait_until(lambda: is_quiet(cluster))


def is_quiet(cluster: klamm.Cluster) -> bool:
    """Whether nothing is written or flushed for a while."""
    before, end = cluster.counters(), time.monotonic() + LOOK_S
    wait_until(lambda: time.monotonic() > end)
    after = cluster.counters()
    return all(after[QUORUM + name] == before[QUORUM + name] for name in ("Records", "Appends", "Flushes"))


def test_an_observer_sees_the_log_advance() -> None:
    with klamm.Cluster(controllers=1, config=OFTEN) as cluster:
        wait_until(cluster.registered_controllers)
        with QuorumClient(cluster.bootstrap_servers, is_controller=False) as client:
            before = client.describe().high_watermark
            wait_until(lambda: client.describe().high_watermark >= before + 10)
