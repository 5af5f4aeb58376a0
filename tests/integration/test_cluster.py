"""The embedded cluster: a guest in the process it lives in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import klamm
from klamm.node.cluster import ClusterClosedError
from klamm.protocol.errors import ErrorCode, KafkaError


def produce(cluster: klamm.Cluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def test_a_guest_leaves_nothing_behind() -> None:
    threads, handlers = threading.active_count(), signal.getsignal(signal.SIGTERM)
    with klamm.Cluster() as cluster:
        folder = cluster.data
        cluster.create_topic("t", 2)
        produce(cluster, "t", "a", "b")
        assert sorted(record.value or b"" for record in cluster.records("t")) == [b"a", b"b"]
        assert cluster.topics() == ["t"]
        assert signal.getsignal(signal.SIGTERM) is handlers
    assert not folder.exists()
    assert threading.active_count() == threads
    with pytest.raises(ClusterClosedError, match="closed"):
        cluster.topics()
    cluster.close()


def test_two_at_a_time_do_not_meet() -> None:
    with klamm.Cluster() as one, klamm.Cluster() as other:
        one.create_topic("only-here")
        assert other.topics() == []
        assert one.cluster_id != other.cluster_id


def test_a_given_folder_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with klamm.Cluster(tmp_path / "data") as cluster:
            if not cluster.topics():
                cluster.create_topic("kept")
            produce(cluster, "kept", "again")
            count = len(cluster.records("kept"))
    assert count == 2


def test_committed_offsets() -> None:
    with klamm.Cluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", "a", "b")
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"log_level": 0})
        consumer.subscribe(["t"])
        assert consumer.poll(20).value() == b"a"
        consumer.commit(asynchronous=False)
        consumer.close()
        assert cluster.committed("g") == {("t", 0): 1}
        assert cluster.committed("nobody") == {}


def test_errors_name_the_thing() -> None:
    with klamm.Cluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(KafkaError) as twice:
            cluster.create_topic("t")
        assert twice.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError, match="missing"):
            cluster.records("missing")


async def test_async_with() -> None:
    async with klamm.Cluster() as cluster:
        cluster.create_topic("t")
        assert cluster.topics() == ["t"]


def test_a_fork_is_told() -> None:
    with klamm.Cluster() as cluster:
        child = os.fork()
        if child == 0:
            try:
                cluster.topics()
            except ClusterClosedError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_import_is_light() -> None:
    code = "import sys, klamm; print(any(name in sys.modules for name in ('asyncio', 'kio', 'typer', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
