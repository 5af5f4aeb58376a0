"""Three brokers on this machine, replication factor 3, min ISR 2: what a single replica does not show."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benches import client, clusters
from benches.cells import GB, Cell, CellError, Figures, load, settle
from benches.clusters import ClusterServer
from benches.servers import KAFKA, Bench, Server, cpu_seconds
from klamm.admin.quorum import QuorumClient

BROKERS: Final = (1, 2, 3)
FAILED_OVER: Final = 12


def data(size: int, seconds: int) -> Cell:
    """acks=all: the maximum rate into three partitions, each led by another broker; then single records at 1,000/s."""

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind) as server:
            if kind == KAFKA and not bench.quick:
                _produce(server, GB // 2)
            settle(bench)
            figures = _produce(server, size)
            settle(bench)
            topic = new_topic(server, 1)
            load(server, "latency", topic=topic, rate=1000, seconds=1)
            found = load(server, "latency", topic=topic, rate=1000, seconds=seconds)
            return {**figures, "p50 us": found["p50_us"], "p99 us": found["p99_us"]}

    return cell


def followers(size: int) -> Cell:
    """The processor time of the leader of one partition, and of each of its two followers."""

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind) as server:
            if kind == KAFKA and not bench.quick:
                _produce(server, GB // 2)
            settle(bench)
            topic, pids = new_topic(server, 1), [node.pid for node in reversed(server.nodes)]
            before = list(map(cpu_seconds, pids))
            options = {"address": ",".join(server.leaders), "topic": topic, "connections": 1, "partitions": 1}
            found = load(server, "produce", **options, bytes=size)
            leader, *others = (cpu_seconds(pid) - cpu_s for pid, cpu_s in zip(pids, before, strict=True))
            gigabytes = found["bytes"] / GB
            return {
                "leader, CPU-s/GB": leader / gigabytes,
                "each follower, CPU-s/GB": sum(others) / len(others) / gigabytes,
            }

    return cell


def role_changes(partitions: int) -> Cell:
    """SIGKILL of the leader of that many partitions, of which the two others lead half each afterwards.

    The active controller is another node. Until the last partition of each has acknowledged a record.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind) as server:
            active = _active(server)
            killed, *others = sorted(BROKERS, key=lambda each: (each == active, each))
            topic = client.fresh_name("bench")
            orders = [(killed, *others), (killed, *others[::-1])]
            client.create_assigned(server.address, topic, {at: orders[at % 2] for at in range(partitions)})
            load(server, "touch", address=server.leaders[killed - 1], topic=topic, partitions=partitions)
            _until_in_sync(server, topic)
            by_id = dict(zip(BROKERS, reversed(server.nodes), strict=True))
            pids = [by_id[each].pid for each in others]
            before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
            by_id[killed].kill()
            for at, each in enumerate(others):
                client.until_acknowledged(server.leaders[each - 1], topic, [partitions - 2 + at])
            return {
                "until the last are writable ms": (time.perf_counter() - began) * 1000,
                "CPU ms of both": (sum(map(cpu_seconds, pids)) - before) * 1000,
            }

    return cell


def keyed(size: int, producers: Sequence[int]) -> Cell:
    """Ten keyed records of 100 bytes per batch, 20 batches per request; each broker leads a third of 99 partitions."""

    def cell(bench: Bench, kind: str) -> Figures:
        figures: dict[str, float] = {}
        with clusters.replicated(bench, kind) as server:
            if kind == KAFKA and not bench.quick:
                _keyed(server, GB // 10, producers[0])
            for count in producers:
                settle(bench)
                measured = _keyed(server, size, count)
                figures |= {f"{count} producers, {figure}": value for figure, value in measured.items()}
        return figures

    return cell


def commits(seconds: int) -> Cell:
    """50 groups commit single offsets, five in flight each, at one coordinator whose partitions have three replicas."""

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind, {"offsets.topic.num.partitions": "1"}) as server:
            topic = new_topic(server, 1)
            client.until_committed(server.address, "first", topic)
            address = _coordinator(server)
            options = {"address": address, "topic": topic, "connections": 50}
            load(server, "commit", **options, seconds=1 if bench.quick else 5)
            settle(bench)
            found, cpu_s = with_cpu(server, lambda: load(server, "commit", **options, seconds=seconds))
            return {
                "commits/s": found["commits"] / found["seconds"],
                "CPU us a commit, all three": cpu_s / found["commits"] * 1e6,
            }

    return cell


def resident(partitions: int) -> Cell:
    """Memory: idle, and with that many partitions of three replicas, each written to."""

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind) as server:
            idle = server.resident_mb_of_all()
            began = time.perf_counter()
            new_topic(server, partitions)
            taken, resident = time.perf_counter() - began, server.resident_mb_of_all()
            return {
                "until all are written to s": taken,
                "resident MB of all three, idle": idle,
                "resident MB of all three": resident,
                "KiB a replica": (resident - idle) * 1024 / (len(BROKERS) * partitions),
            }

    return cell


def failover(kills: int) -> Cell:
    """SIGKILL of the node that is the active controller and leads a third of 12 partitions, that many times.

    Until all 12 have acknowledged a record again, each at the leader in the metadata of the others.
    """

    def cell(bench: Bench, kind: str) -> Figures:
        with clusters.replicated(bench, kind) as server:
            times_ms = [_kill(server, new_topic(server, FAILED_OVER)) for _ in range(kills)]
        return {
            "shortest ms": min(times_ms),
            "median ms": statistics.median(times_ms),
            "longest ms": max(times_ms),
        }

    return cell


def _active(server: ClusterServer) -> int:
    """The active controller."""
    with QuorumClient(server.address, is_controller=False) as quorum:
        return quorum.describe().leader_id


def _kill(server: ClusterServer, topic: str) -> float:
    active = _active(server)
    node = next(node for node in server.nodes if node.bootstrap == server.leaders[active - 1])
    others = ",".join(address for address in server.leaders if address != node.bootstrap)
    began = time.perf_counter()
    node.kill()
    _until_writable(others, topic)
    taken = time.perf_counter() - began
    node.start()
    _until_in_sync(server, topic)
    return taken * 1000


def _until_writable(addresses: str, topic: str) -> None:
    left, deadline = set(range(FAILED_OVER)), time.monotonic() + client.PATIENCE_S
    with client.Client(addresses) as connected:
        while left:
            if time.monotonic() > deadline:
                raise CellError(
                    f"{len(left)} of {FAILED_OVER} partitions were not writable within {client.PATIENCE_S:.0f} s"
                )
            leaders = {one.index: one.leader for one in client.topic_admin.topics(connected, [topic])[0].partitions}
            for partition in list(left):
                with contextlib.suppress(client.ClientError):
                    client.produce(connected.broker(leaders[partition]), topic, partition)
                    left.discard(partition)
            time.sleep(client.POLL_S)


def _until_in_sync(server: ClusterServer, topic: str) -> None:
    deadline = time.monotonic() + client.PATIENCE_S
    while True:
        with contextlib.suppress(client.ClientError), client.Client(",".join(server.leaders)) as connected:
            [found] = client.topic_admin.topics(connected, [topic])
            if all(len(one.isr) == len(BROKERS) for one in found.partitions):
                break
        if time.monotonic() > deadline:
            raise CellError(f"a node that returned was not in sync within {client.PATIENCE_S:.0f} s")
        time.sleep(0.05)


def new_topic(server: ClusterServer, partitions: int, configs: Mapping[str, str] | None = None) -> str:
    """A new topic of three replicas. Partition `p` is led by the broker at `leaders[p % 3]`."""
    name = client.fresh_name("bench")
    rotated = [BROKERS[at:] + BROKERS[:at] for at in range(len(BROKERS))]
    assignment = {at: rotated[at % len(BROKERS)] for at in range(partitions)}
    client.create_assigned(server.address, name, assignment, configs)
    for at, address in enumerate(server.leaders[:partitions]):
        client.until_acknowledged(address, name, range(at, partitions, len(BROKERS)))
    return name


def _produce(server: ClusterServer, size: int) -> dict[str, float]:
    topic = new_topic(server, len(BROKERS))
    return _rates(server, "produce", topic, size, connections=len(BROKERS), partitions=len(BROKERS))


def _keyed(server: ClusterServer, size: int, connections: int) -> dict[str, float]:
    return _rates(server, "keyed", new_topic(server, 99), size, connections=connections, partitions=99)


def _rates(server: ClusterServer, mode: str, topic: str, size: int, **options: int) -> dict[str, float]:
    """The figures of the load generator; the topic is deleted afterwards."""
    address = ",".join(server.leaders)
    found, cpu_s = with_cpu(server, lambda: load(server, mode, address=address, topic=topic, bytes=size, **options))
    client.delete(server.address, topic)
    gigabytes = found["bytes"] / GB
    return {
        "GB/s": gigabytes / found["seconds"],
        "M records/s": found["records"] / found["seconds"] / 1e6,
        "CPU-s/GB, all three": cpu_s / gigabytes,
    }


def with_cpu(server: Server, work: Callable[[], Mapping[str, float]]) -> tuple[Mapping[str, float], float]:
    """The result of the work, and the processor time of all nodes for it, in seconds."""
    before = server.cpu_seconds()
    found = work()
    return found, server.cpu_seconds() - before


def _coordinator(server: ClusterServer) -> str:
    """The broker that leads the only partition of the offsets topic."""
    with client.Client(server.address) as connected:
        [topic] = client.topic_admin.topics(connected, ["__consumer_offsets"])
    return server.leaders[topic.partitions[0].leader - 1]
