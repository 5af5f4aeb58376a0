"""Metadata snapshots in unusual cases: deleted by age alone, and `kill -9` while one is written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import klamm
from tests.support.node_process import NodeProcess

FOLDER = "__cluster_metadata-0"
WAIT_S = 30
HITS = 2
KILLS_MAX = 25


def snapshots(data: Path) -> list[str]:
    """The complete snapshots, oldest first."""
    return sorted(path.name for path in (data / FOLDER).glob("*.checkpoint"))


def test_age_alone_deletes_snapshots_while_the_node_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = {
        "metadata.log.max.snapshot.interval.ms": "20",
        "metadata.max.retention.ms": "400",
        "metadata.max.retention.bytes": "-1",
    }
    count = 0
    with klamm.Cluster(data, config=config) as cluster:
        deadline = time.monotonic() + WAIT_S
        seen: list[str] = []
        while len(gone := [name for name in seen if name not in snapshots(data)]) < 3:
            assert time.monotonic() < deadline, (seen, snapshots(data))
            cluster.create_topic(f"t{count}")
            count += 1
            seen += [name for name in snapshots(data) if name not in seen]
        left = snapshots(data)
        assert gone == seen[: len(gone)], "the oldest go first"
        assert left
        assert left[-1] >= seen[-1], "the newest stays; there may be a newer one by now"
    with klamm.Cluster(data, config=config) as cluster:
        for number in range(count):
            assert cluster.records(f"t{number}") == []


class Topics:
    """Creates topics until `stop`, and remembers the acknowledged ones."""

    def __init__(self, bootstrap: str, first: int) -> None:
        self.made: list[str] = []
        self._first, self._admin = first, AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = self._first
        while not self._stop.is_set():
            name, number = f"t{number}", number + 1
            try:
                self._admin.create_topics([NewTopic(name, 3, 1)], request_timeout=2)[name].result(3)
            except KafkaException:
                continue
            self.made.append(name)

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        return self.made


@pytest.mark.timeout(300)
def test_a_kill_during_a_snapshot_keeps_the_previous_one(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", overrides={"metadata.log.max.record.bytes.between.snapshots": "300"})
    folder = node.data / FOLDER
    acknowledged: list[str] = []
    hits = 0
    node.start()
    try:
        for kill in range(KILLS_MAX):
            topics = Topics(node.bootstrap, kill * 1000)
            deadline = time.monotonic() + WAIT_S
            while not (snapshots(node.data) and any(folder.glob("*.part"))):
                assert time.monotonic() < deadline, "no snapshot is written after another"
            node.kill()
            acknowledged += topics.stop()
            unfinished = list(folder.glob("*.part"))
            whole = set(snapshots(node.data))
            node.start()
            assert not any(path.exists() for path in unfinished)
            assert whole & set(snapshots(node.data)), "one of those that were whole is there"
            known = AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=WAIT_S).topics
            assert known.keys() >= set(acknowledged)
            assert {len(known[name].partitions) for name in acknowledged} <= {3}
            hits += len(unfinished)
            if hits >= HITS:
                return
    finally:
        node.kill()
    raise AssertionError(f"{KILLS_MAX} kills, and {hits} while a snapshot was written")
