"""`cluster.counters()`: each counter changes when its event happens."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import klamm
from klamm.admin import topics
from klamm.admin.client import Client
from klamm.client import ClientError
from tests.support.waiting import wait_until

IN = "kafka.server:type=BrokerTopicMetrics,name="
LOG = "klamm.log:type=Log,name="
REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request="
SOCKETS = "kafka.server:type=socket-server-metrics,name="
GROUPS = "kafka.server:type=group-coordinator-metrics,name="
COORDINATOR = "klamm.coordinator:type=Groups,name="
QUORUM = "klamm.raft:type=MetadataLog,name="
FLUSHES = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"


class Moved:
    """By how much the counters have changed since the last call."""

    def __init__(self, cluster: klamm.Cluster) -> None:
        self._cluster = cluster
        self._before = cluster.counters()

    def __call__(self) -> dict[str, int]:
        found, before = self._cluster.counters(), self._before
        assert found.keys() >= before.keys(), "a counter is missing"
        assert all(found[name] >= count for name, count in before.items()), "a counter decreased"
        self._before = found
        return {name: count - before.get(name, 0) for name, count in found.items() if count != before.get(name, 0)}


def test_each_counter_counts_its_event() -> None:
    config = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}
    with klamm.Cluster(flush=True, config=config | {"group.initial.rebalance.delay.ms": "0"}) as cluster:
        moved = Moved(cluster)
        cluster.create_topic("t", config={"segment.bytes": str(1 << 20)})
        found = moved()
        assert {f"{QUORUM}{name}" for name in ("Records", "Bytes", "Appends", "Flushes", "FlushTimeUs")} <= found.keys()
        # A topic, its partition and its config.
        assert found[f"{QUORUM}Records"] == 3

        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for _ in range(3):
            producer.produce("t", bytes(600_000))
            assert producer.flush(20) == 0
        found = moved()
        assert (found[f"{IN}MessagesInPerSec"], found[f"{LOG}Appends"], found[f"{LOG}Rolls"]) == (3, 3, 2)
        assert 1_800_000 < found[f"{IN}BytesInPerSec"] < 1_801_000
        assert found[f"{SOCKETS}incoming-byte-total"] > found[f"{IN}BytesInPerSec"]
        assert sum(count for name, count in found.items() if name.startswith(f"{REQUESTS}Produce,")) == 3
        assert {FLUSHES, f"{LOG}FlushTimeUs", f"{SOCKETS}connection-creation-total"} <= found.keys()

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.delete_records([TopicPartition("t", 0, 2)])[TopicPartition("t", 0)].result(20)
        wait_until(lambda: cluster.counters()[f"{LOG}DeletedSegments"] == 2)
        assert 1_200_000 < moved()[f"{LOG}DeletedBytes"] < 1_201_000

        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        with contextlib.closing(Consumer(settings | {"enable.auto.commit": "false"})) as consumer:
            consumer.subscribe(["t"])
            message = consumer.poll(30)
            assert message is not None
            consumer.commit(message, asynchronous=False)
        found = moved()
        assert (found[f"{GROUPS}offset-commit-count"], found[f"{GROUPS}group-completed-rebalance-count"]) == (1, 1)
        assert found[f"{COORDINATOR}Loads"] == 50
        # The group when it is created and when it is assigned, and the offset.
        assert found[f"{COORDINATOR}AppendedRecords"] >= 3
        assert found[f"{SOCKETS}outgoing-byte-total"] > 600_000

        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"\xff" * 8)
            assert connection.recv(1) == b""
        assert moved()["klamm.network:type=Connections,name=ClosedForFault"] == 1


def test_requests_are_measured_while_measuring_is_enabled() -> None:
    with klamm.Cluster() as cluster:
        engine = cluster._node.engine  # no exporter is running yet
        cluster.create_topic("t")
        assert engine.request_metrics() == {}
        engine.measure_requests(True)
        with Client(cluster.bootstrap_servers) as client:
            topics.create(client, ["u"], partitions=1, replication_factor=1)
            with pytest.raises(ClientError):
                topics.create(client, ["u"], partitions=1, replication_factor=1)
        total = "kafka.network:type=RequestMetrics,name=TotalTimeMs,request="
        wait_until(lambda: (found := engine.request_metrics().get(f"{total}CreateTopics")) and found.count == 2)
        found = engine.request_metrics()
        measured = found[f"{total}CreateTopics"]
        assert measured.count == 2
        assert 0 < measured.sum <= 2 * measured.quantile(1.0) < 60_000
        assert found["kafka.network:type=RequestMetrics,name=RequestBytes,request=CreateTopics"].sum > 20
        local = found["kafka.network:type=RequestMetrics,name=LocalTimeMs,request=CreateTopics"]
        assert 0 < local.sum <= measured.sum
        errors = {name: count for name, count in cluster.counters().items() if "ErrorsPerSec,request=Create" in name}
        of = "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=CreateTopics,error="
        assert errors == {f"{of}NONE": 1, f"{of}TOPIC_ALREADY_EXISTS": 1}


def test_refused_connections_are_counted() -> None:
    with klamm.Cluster(config={"max.connections.per.ip": "2"}) as cluster:
        name = "klamm.network:type=Connections,name=Refused"
        assert cluster.counters()[name] == 0
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with contextlib.ExitStack() as opened:
            three = [opened.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(3)]
            assert three[2].recv(1) == b"", "the third is closed at once"
            wait_until(lambda: cluster.counters()[name] == 1)


def test_the_metadata_log_counts_rolled_and_deleted_segments(tmp_path: Path) -> None:
    config = {
        "metadata.log.segment.ms": "1",
        "metadata.log.max.record.bytes.between.snapshots": "1",
        "metadata.max.retention.bytes": "1",
    }
    with klamm.Cluster(tmp_path / "data", config=config) as cluster:

        def count(what: str) -> int:
            return cluster.counters()[f"{QUORUM}{what}"]

        for at in range(4):
            cluster.create_topic(f"t{at}")
        wait_until(lambda: count("DeletedSegments") > 1)
        assert count("DeletedSegments") <= count("Rolls") < count("Appends")
        assert 0 < count("DeletedBytes") < count("Bytes")
    first = min((tmp_path / "data" / "__cluster_metadata-0").glob("*.log"))
    assert int(first.stem) > 0, "what was counted as deleted is gone"
