"""A controller of a cluster with very many partitions: its start, and brokers that shut down, crash and return.

The controller is a process of its own, `klamm start`, the only voter, with a synced log. The brokers exist only in its
metadata: this program sends their heartbeats over the network, and reports that they have replayed everything. So the
measurement covers all of the metadata work: elections, records, the log, the committed image. No snapshot is due
meanwhile; the row `metadata snapshot` measures its cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.ports import free_port
from tests.support.quorum_processes import HOST

from benches.cells import Cell, Figures, settle
from benches.clusters import KlammNode, cpu_seconds
from benches.servers import KAFKA_CLUSTER_ID, Bench, Server
from klamm._engine.controller import topic_records
from klamm._engine.metadata import Image
from klamm._engine.quorum import write_snapshot
from klamm.client import ClientError
from klamm.client.connection import Connection
from klamm.formats.directories import METADATA_FOLDER
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.generated import metadata_records as records
from klamm.protocol.messages import registration as messages

CONTROLLER: Final = 1
BROKERS: Final = range(100, 110)
REPLICAS: Final = 3
PARTITIONS_OF_A_TOPIC: Final = 10
BATCH_TOPICS: Final = 1_000
EPOCH: Final = 1
OFFSET: Final = 1_000_000  # the end offset of the snapshot
SESSION_MS: Final = 3_000
BEAT_S: Final = 0.05
EVERYTHING: Final = 1 << 60
PATIENCE_S: Final = 120.0
LEAVES, DIES = BROKERS[0], BROKERS[1]


def departures(*sizes: int) -> Cell:
    """RF 3 on ten brokers: each leads a tenth of the partitions and follows in two tenths."""

    def cell(bench: Bench, kind: str) -> Figures:
        found: dict[str, float] = {}
        for partitions in sizes:
            settle(bench)
            found |= _measure(bench, kind, partitions)
        return found

    return cell


def _measure(bench: Bench, kind: str, partitions: int) -> Figures:
    controller = _formatted(bench.new_folder("controller"), partitions)
    size = f"{partitions / 1_000_000:g} M"
    try:
        started = _Watch(controller).of(controller.start_and_wait)
        resident = Server(kind, controller.data, controller).resident_mb()
        with _Brokers(controller.port) as brokers:
            left = _Watch(controller).of(lambda: brokers.leave(LEAVES))
            came_back = brokers.come_back(DIES, _Watch(controller))
            longest_ms = brokers.longest_s * 1000
        controller.kill()
        restarted = _Watch(controller).of(controller.start_and_wait)
    finally:
        controller.kill()
    return {
        f"{size}: controlled shutdown, s": left.seconds,
        f"{size}: controlled shutdown, CPU s": left.cpu_seconds,
        f"{size}: recovery from an unclean stop, s": came_back.seconds,
        f"{size}: recovery from an unclean stop, CPU s": came_back.cpu_seconds,
        f"{size}: longest answer to another's heartbeat meanwhile, ms": longest_ms,
        f"{size}: controller's start from a snapshot, s": started.seconds,
        f"{size}: controller's start after kill -9, s": restarted.seconds,
        f"{size}: resident MB": resident,
    }


class _Controller(KlammNode):
    """A process that is only a controller."""

    def start_and_wait(self) -> None:
        """Start, and wait until it is active and answers heartbeats."""
        self.launch()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with Connection(HOST, self.port, PATIENCE_S) as connection:
                    answer = _heartbeat(connection, BROKERS[-1])
                    if answer.error_code is ErrorCode.NONE:
                        return
            except ClientError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.002)


class _Watch:
    """The duration of an operation, and the node's processor time for it."""

    def __init__(self, node: KlammNode) -> None:
        self._node = node
        self.seconds = self.cpu_seconds = 0.0
        self.begin()

    def begin(self) -> None:
        """Start measuring."""
        self._cpu_began, self._began = self._cpu(), time.perf_counter()

    def end(self) -> None:
        """Stop measuring."""
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = self._cpu() - self._cpu_began

    def of(self, work: Callable[[], None]) -> _Watch:
        """Run it, and read both clocks."""
        self.begin()
        work()
        self.end()
        return self

    def _cpu(self) -> float:
        return cpu_seconds(self._node.pid) if self._node.is_running else 0.0


class _Brokers:
    """The heartbeats of the remaining brokers, each on its own connection and thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = {broker_id: threading.Event() for broker_id in BROKERS[1:]}
        self._threads = [threading.Thread(target=self._beat, args=pair) for pair in self._ends.items()]
        self._failures: list[Exception] = []
        self.longest_s = 0.0

    def __enter__(self) -> _Brokers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends.values():
            end.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _beat(self, broker_id: int, end: threading.Event) -> None:
        try:
            with Connection(HOST, self._port, PATIENCE_S) as connection:
                while not end.wait(BEAT_S):
                    began = time.perf_counter()
                    _checked(_heartbeat(connection, broker_id))
                    self.longest_s = max(self.longest_s, time.perf_counter() - began)
        except Exception as error:  # fails the measurement instead of this thread
            self._failures.append(error)

    def leave(self, broker_id: int) -> None:
        """A controlled shutdown, until the broker may stop."""
        with Connection(HOST, self._port, PATIENCE_S) as connection:
            while not _checked(_heartbeat(connection, broker_id, want_shut_down=True)).should_shut_down:
                time.sleep(0.001)

    def come_back(self, broker_id: int, watch: _Watch) -> _Watch:
        """A killed broker returns with a new incarnation; until it is unfenced.

        Measured from the end of its previous session, because there is nothing to do before.
        """
        self._ends[broker_id].set()
        time.sleep(SESSION_MS / 1000 - 0.1)
        with Connection(HOST, self._port, PATIENCE_S) as connection:
            while True:
                watch.begin()
                answer = connection.ask(_registration(broker_id), messages.BrokerRegistrationResponse, 4)
                if answer.error_code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    break
                time.sleep(0.005)
            assert answer.error_code is ErrorCode.NONE, answer
            epoch = answer.broker_epoch
            while _checked(_heartbeat(connection, broker_id, broker_epoch=epoch)).is_fenced:
                time.sleep(0.001)
            watch.end()
        return watch


def _heartbeat(connection: Connection, broker_id: int, **wishes: object) -> messages.BrokerHeartbeatResponse:
    values = {"broker_id": broker_id, "broker_epoch": broker_id, "current_metadata_offset": EVERYTHING, **wishes}
    request = messages.BrokerHeartbeatRequest(**values)  # type: ignore[arg-type]
    return connection.ask(request, messages.BrokerHeartbeatResponse, 1)


def _checked(answer: messages.BrokerHeartbeatResponse) -> messages.BrokerHeartbeatResponse:
    assert answer.error_code is ErrorCode.NONE, answer
    return answer


def _registration(broker_id: int) -> messages.BrokerRegistrationRequest:
    ranges = SUPPORTED_FEATURES.items()
    return messages.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=KAFKA_CLUSTER_ID,
        incarnation_id=bytes([255] * 15 + [broker_id]),
        listeners=(messages.Listener("PLAINTEXT", "host", 9092),),
        features=tuple(messages.SupportedFeature(name, at.min_version, at.max_version) for name, at in ranges),
        log_dirs=(bytes([broker_id] * 16),),
    )


def _formatted(folder: Path, partitions: int) -> _Controller:
    port = free_port()
    settings = {
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{port}",
        "broker.session.timeout.ms": str(SESSION_MS),
        "metadata.log.max.record.bytes.between.snapshots": str(1 << 30),
        "broker.heartbeat.interval.ms": str(SESSION_MS // 2),
    }
    controller = _Controller(folder, CONTROLLER, port, settings)
    controller.format(KAFKA_CLUSTER_ID)
    directory = controller.data / METADATA_FOLDER
    directory.mkdir(exist_ok=True)
    path = directory / f"{OFFSET:020}-{EPOCH:010}.checkpoint"
    now_ms = time.time_ns() // 1_000_000
    write_snapshot(path, image(partitions), epoch=EPOCH, last_contained_log_timestamp_ms=now_ms, now_ms=now_ms)
    # Without a log, records after the snapshot may be lost, so the node would not start.
    (directory / f"{OFFSET:020}.log").touch()
    return controller


def image(partitions: int) -> Image:
    """Topics of ten partitions, RF 3, leaders in turn; every broker is unfenced."""
    values = [records.encode(records.FeatureLevelRecord(name="metadata.version", feature_level=30), 0)]
    for broker_id in BROKERS:
        directory = bytes([broker_id] * 16)
        record = records.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=directory,
            broker_epoch=broker_id,
            end_points=[records.BrokerEndpoint(name="PLAINTEXT", host="host", port=9092, security_protocol=0)],
            features=(),
            rack=None,
            fenced=False,
            log_dirs=(directory,),
        )
        values.append(records.encode(record, 3))
    made = Image().apply(values)
    size = len(BROKERS)
    replicas = [[BROKERS[(first + at) % size] for at in range(REPLICAS)] for first in range(PARTITIONS_OF_A_TOPIC)]
    for start in range(0, partitions // PARTITIONS_OF_A_TOPIC, BATCH_TOPICS):
        batch: list[bytes] = []
        for number in range(start, min(partitions // PARTITIONS_OF_A_TOPIC, start + BATCH_TOPICS)):
            topic_id = (number + 1).to_bytes(16, "little")
            batch += topic_records(made, f"topic-of-some-length-{number}", topic_id, [], replicas)
        made = made.apply(batch)
    return made
