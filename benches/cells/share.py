"""Members of a share group that accept every record (KIP-932), and records in flight."""

from __future__ import annotations

from typing import Final

from benches import client
from benches.cells import Cell, Figures, load, settle
from benches.servers import KAFKA, Bench, Server
from klamm.admin import configs
from klamm.admin.client import Client

RECORD_BYTES: Final = 100
BATCH_BYTES: Final = 16_384
"""The size of a batch of Apache Kafka's producer."""
CONFIG: Final = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.record.lock.duration.ms": "60000",
}
LOCKS_MAX: Final = 2_000
"""The limit of records in flight per partition, the default of both systems."""


def rates(records: int, members: int, partitions: int) -> Cell:
    """That many members accept `records`; each fetch accepts those of the previous one."""

    def cell(bench: Bench, kind: str) -> Figures:
        with bench.fresh(kind, CONFIG) as server:
            topic = _filled(server, records + members * partitions * LOCKS_MAX, partitions)
            options = {"topic": topic, "partitions": partitions, "connections": members}
            # The first group warms up the JVM and the topic of states.
            warm_up = records // (2 if kind == KAFKA and not bench.quick else 20)
            load(server, "share", **options, group=_from_start(server), records=warm_up)
            group = _from_start(server)
            settle(bench)
            found = load(server, "share", **options, group=group, records=records)
            return {
                "records/s": found["accepted"] / found["share_seconds"],
                "CPU us a record": found["server_cpu_seconds"] / found["accepted"] * 1e6,
            }

    return cell


def in_flight(records: int, hold: str) -> Cell:
    """The cost of a record in flight: `hold` is "all" records, or "every second one", whose neighbours are accepted."""

    def cell(bench: Bench, kind: str) -> Figures:
        partitions = records // LOCKS_MAX
        with bench.fresh(kind, CONFIG) as server:
            topic = _filled(server, records + partitions * LOCKS_MAX, partitions)
            options = {"topic": topic, "partitions": partitions, "connections": 1}
            # Metadata, connections and page cache are not part of the comparison.
            load(server, "share", **options, group=_from_start(server), records=partitions * 100)
            group = _from_start(server)
            settle(bench)
            # A partition may stop a batch before its limit.
            wanted = records * 9 // 10
            found = load(server, "share", **options, group=group, records=wanted, hold=1 if hold == "all" else 2)
            held = found["acquired"] - found["accepted"]
            return {"records in flight": held, "bytes a record in flight": found["grown_kib"] * 1024 / held}

    return cell


def _filled(server: Server, records: int, partitions: int) -> str:
    """A topic with at least that many records, the same number in each partition."""
    topic = client.fresh_name("bench")
    client.create(server.address, [topic], partitions)
    client.until_acknowledged(server.address, topic, range(partitions))
    options = {"record": RECORD_BYTES, "batch": BATCH_BYTES, "bytes": records * (RECORD_BYTES + 10)}
    load(server, "produce", topic=topic, partitions=partitions, spread=partitions, connections=1, **options)
    return topic


def _from_start(server: Server) -> str:
    """The name of a new group that reads from the first record on, and whose coordinator is ready."""
    group = client.fresh_name("shared")
    with Client(server.address) as admin:
        configs.alter(admin, "group", group, {"share.auto.offset.reset": "earliest"})
        admin.coordinator(group)
    return group
