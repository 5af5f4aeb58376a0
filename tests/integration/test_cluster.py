"""The embedded cluster runs inside its caller's process, and does not disturb it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import klamm
from klamm.config.node_config import NodeConfigError
from klamm.embedded.members import Members
from klamm.embedded.parts import ClusterClosedError
from klamm.node.node import NodeFailedError
from klamm.protocol.errors import ErrorCode, KafkaError

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.3.1"
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def address(cluster: klamm.Cluster) -> tuple[str, int]:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return host, int(port)


def produce(cluster: klamm.Cluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def test_a_closed_cluster_leaves_nothing_behind() -> None:
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


def test_records_begin_at_the_log_start_offset() -> None:
    """The first batch may still contain deleted records."""
    with klamm.Cluster() as cluster:
        cluster.create_topic("t")
        produce(cluster, "t", *map(str, range(10)))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        place = TopicPartition("t", 0, 4)
        assert admin.delete_records([place])[place].result(20).low_watermark == 4
        assert [record.offset for record in cluster.records("t")] == [4, 5, 6, 7, 8, 9]
        with pytest.raises(KafkaError, match="topic 't' has no partition 1"):
            cluster.records("t", 1)


def test_an_unclosed_cluster_leaves_no_folder_behind(tmp_path: Path) -> None:
    code = "import klamm; cluster = klamm.Cluster(); cluster.create_topic('t'); print(cluster.topics())"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['t']\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_is_not_flushed_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synced: list[int] = []
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), flush(handle))[1])
    with klamm.Cluster() as cluster:
        cluster.create_topic("t")
    assert synced == []
    for given in ({"flush": True}, {"data": tmp_path / "data"}):
        with klamm.Cluster(**given) as cluster:
            cluster.create_topic("t")
        assert synced, given
        synced.clear()


A_CLUSTERS_LIFE = """
import gc, os, socket, sys, time, klamm

def threads():
    return len(os.listdir("/proc/self/task"))

def descriptors():
    return len(os.listdir("/proc/self/fd"))

gc.disable()
before = threads()
for _ in range(2):
    opened = descriptors()
    with klamm.Cluster() as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), 30) as peer:
            peer.sendall(bytes.fromhex("0000000a 03e7 0000 00000001 ffff"))  # an API that nobody knows
            assert peer.recv(1) == b""
deadline = time.monotonic() + 30
while threads() > before and time.monotonic() < deadline:  # a thread that was joined may be seen a moment longer
    time.sleep(0.01)
print(threads() - before, descriptors() - opened)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_cluster_prints_nothing_and_ends_its_native_threads() -> None:
    """It also closes its descriptors, without waiting for the garbage collector.

    Native threads are counted in /proc, because Python does not know them. Warnings go only to `logging`.
    """
    done = subprocess.run(
        [sys.executable, "-c", A_CLUSTERS_LIFE], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0 0\n", "")


def test_an_unsupported_security_protocol_is_rejected() -> None:
    listeners = {"listeners": "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "advertised.listeners": "SSL://127.0.0.1:0"}
    protocols = {"listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT", "inter.broker.listener.name": "SSL"}
    with pytest.raises(NodeConfigError, match="TLS and SASL are not supported yet"):
        klamm.Cluster(config=listeners | protocols)


def test_two_clusters_are_independent() -> None:
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


def test_errors_name_the_topic() -> None:
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


def test_a_fork_is_reported() -> None:
    with klamm.Cluster() as cluster:
        child = os.fork()
        if child == 0:
            try:
                cluster.topics()
            except ClusterClosedError:
                # A cluster that the child starts has its own threads, and works.
                with klamm.Cluster() as own, socket.create_connection(address(own), 20) as peer:
                    peer.settimeout(20)
                    peer.sendall(API_VERSIONS)
                    os._exit(7 if peer.recv(4) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_call_during_close_raises_cluster_closed() -> None:
    """Whether the call was waiting for the node, reading in its own thread, or had not begun."""
    errors: list[BaseException] = []
    cluster = klamm.Cluster()
    cluster.create_topic("t")
    under_way = threading.Barrier(4)

    def call(work: Callable[[int], object]) -> None:
        under_way.wait()
        try:
            for number in itertools.count():
                work(number)
        except BaseException as error:  # the test checks it
            errors.append(error)

    works = (
        lambda number: cluster.create_topic(f"t{number}"),
        lambda _: cluster.records("t"),
        lambda _: cluster.topics(),
    )
    threads = [threading.Thread(target=call, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    under_way.wait()
    cluster.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [ClusterClosedError] * 3
    assert {str(error) for error in errors} == {f"the cluster in {cluster.data} is closed"}


def test_several_threads_may_close_it() -> None:
    cluster = klamm.Cluster()
    errors: list[BaseException] = []

    def close() -> None:
        try:
            cluster.close()
        except BaseException as error:  # the test checks it
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert errors == []
    assert not cluster.data.exists()


def test_a_start_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start = threading.active_count(), Members.start

    async def start_late(members: Members) -> None:
        await start(members)
        await asyncio.Event().wait()

    monkeypatch.setattr(Members, "start", start_late)
    monkeypatch.setattr(klamm.embedded.cluster, "START_TIMEOUT_S", 0)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(folder.mkdir() or folder))
    folder = Path(tempfile.gettempdir()) / f"klamm-{os.urandom(8).hex()}"
    with pytest.raises(TimeoutError, match=f"the cluster in {folder} did not start within 0 s"):
        klamm.Cluster()
    assert threading.active_count() == before
    assert not folder.exists()


def test_a_node_that_stopped_by_itself_is_named_with_its_reason() -> None:
    with klamm.Cluster() as cluster:
        cluster._nodes._loop.call_soon_threadsafe(cluster._node._on_fault, OSError("the disk is gone"))

        def ask_for_ever() -> None:
            while True:
                cluster.topics()

        with pytest.raises(NodeFailedError, match="the disk is gone"):
            ask_for_ever()


def test_import_is_light() -> None:
    code = "import sys, klamm; print(any(name in sys.modules for name in ('asyncio', 'kio', 'typer', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_records_of_a_taken_over_log_respect_its_transactions(tmp_path: Path, name: str) -> None:
    """One is aborted, one open. The records that Apache Kafka's own consumers read are stored next to the directory."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    expected = json.loads((GOLDEN / "expected.json").read_text())
    wanted = {
        "read_uncommitted": expected["records"]["transactional"],
        "read_committed": expected["read_committed"]["transactional"],
    }
    with klamm.Cluster(tmp_path / name, config={"offsets.topic.num.partitions": "4"}) as cluster:
        for level in ("read_uncommitted", "read_committed"):
            found = cluster.records("transactional", isolation_level=level)  # type: ignore[arg-type]
            assert [(record.offset, (record.value or b"").decode()) for record in found] == [
                (offset, value) for offset, _, _, value in wanted[level]
            ]
        with pytest.raises(ValueError, match="it has to be read_uncommitted or read_committed"):
            cluster.records("transactional", isolation_level="committed")  # type: ignore[arg-type]
    assert len(wanted["read_committed"]) < len(wanted["read_uncommitted"])
