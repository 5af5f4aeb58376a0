"""The metadata of this node: the replica of the metadata log, the committed image, and the controller."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from klamm._engine import quorum
from klamm._engine.metadata import Image
from klamm.config.listeners import Listener
from klamm.config.node_config import NodeConfig
from klamm.controller.controller import Controller
from klamm.controller.driver import ControllerDriver
from klamm.controller.settings import ControllerSettings
from klamm.formats.directories import BOOTSTRAP_FILE, METADATA_FOLDER, metadata_directory_failed
from klamm.node.boot import Booted
from klamm.node.controller.active_controller import ActiveController
from klamm.protocol.features import METADATA_VERSION, SUPPORTED_FEATURES
from klamm.raft.config import Identity, RaftConfig
from klamm.raft.driver import QuorumStateFile, RaftDriver
from klamm.raft.driver.leased_fetches import NativeFetchAnswers
from klamm.raft.election.election_state import QuorumStateError
from klamm.raft.log.control_records import snapshot_head
from klamm.raft.log.metadata_log import MetadataLogError, OffsetAndEpoch
from klamm.raft.log.native_log import NativeMetadataLog
from klamm.raft.log.snapshots import SnapshotConfig
from klamm.raft.node import RaftNode
from klamm.raft.ports import StateFailedError
from klamm.raft.voters.voter_set import Endpoint, ReplicaKey, Voter, VoterSet, VotersInLog

if TYPE_CHECKING:
    from klamm._engine.client import Conditions
    from klamm.raft.driver.peers import PeerTransport
    from klamm.raft.driver.serving import RaftRequests
    from klamm.raft.driver.streams import FetchStreams, Route
    from klamm.raft.effects import SendRequest
    from klamm.raft.messages import Response
    from klamm.raft.ports import FetchAnswers

log = logging.getLogger("klamm.node.metadata")

Published = Callable[[Image, Image], None]
"""Called with the previous committed image and the new one. Never raises."""


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Metadata:
    """Implements `klamm.raft.ports.Listener`: applies committed records to the image, which the engine serves."""

    def __init__(
        self,
        config: NodeConfig,
        booted: Booted,
        *,
        incarnation_id: bytes,
        is_volatile: bool,
        on_published: Published,
        on_fault: Callable[[Exception], None],
    ) -> None:
        """`is_volatile`: quorum-state is not synced, because it need not survive a power failure."""
        self._config = config
        self._on_published = on_published
        self._on_fault = on_fault
        directory, cluster_id = config.metadata_log_dir / METADATA_FOLDER, booted.cluster_id
        self._cluster_id, self._engine = cluster_id, booted.engine
        self._bootstrap_file = config.metadata_log_dir / BOOTSTRAP_FILE
        self.log = NativeMetadataLog(booted.log, wall_clock_ms)
        key = self._key = ReplicaKey(config.node_id, booted.directory_ids[config.metadata_log_dir])
        self.endpoints = _own_endpoints(config, booted)
        """Where other nodes reach the controller of this node."""
        static = VoterSet.of(
            Voter(ReplicaKey(voter), (Endpoint(config.controller_listener_names[0], *address),))
            for voter, address in config.voters.items()
        )
        identity, seed = Identity(key, cluster_id, self.endpoints), int.from_bytes(os.urandom(8), "big")
        node = RaftNode(identity, VotersInLog(static), _raft_config(config), self.log, seed)
        self.kraft_version = node.replica.voters_in_log.kraft_version
        self._conditions = booted.conditions
        self._peers = LazyTransport(config, self._on_peer_crashed, self._on_peer_refused, booted.conditions)
        self.image, self._applied = booted.snapshot
        self._whole = booted.whole
        self._loaded: tuple[OffsetAndEpoch, Image] | None = None  # loaded but not installed yet
        self.raft = RaftDriver(
            node,
            self.log,
            QuorumStateFile(directory, is_volatile=is_volatile),
            self,
            transport=self._peers,
            open_streams=self._open_streams,
            open_answers=self._open_answers,
            snapshot_config=_snapshot_config(config),
        )
        self.is_alone = node.replica.voters.is_only_voter(key)
        """Whether this node was the only voter when it started, and so becomes leader at once."""
        self.is_active = asyncio.Event()
        self.on_active: Callable[[], object] = lambda: None
        """Called in the loop after this node has become the active controller."""
        self.controller: ControllerDriver | None = None
        """The controller of this process, active or not; None on a node that is only a broker."""
        if config.is_controller:
            settings = ControllerSettings(config.node_id, cluster_id, config.given, own_incarnation_id=incarnation_id)
            self.controller = ControllerDriver(Controller(settings, os.urandom), self.raft)
        self.active_controller = ActiveController(config, self.controller, self.raft, conditions=booted.conditions)

    def start(self) -> None:
        """Join the quorum. Raises StorageError and other errors that stop the replica at once."""
        try:
            self.raft.start()
        except QuorumStateError as error:
            raise quorum.StorageError(str(error)) from None

    @property
    def applied_offset(self) -> int:
        """The offset of the last record in the image; -1 if it is empty."""
        return self._applied - 1

    def raft_requests(self) -> RaftRequests:
        """Answers the requests of other replicas."""
        from klamm.raft.driver.serving import RaftRequests

        return RaftRequests(self.raft, self.log, self._cluster_id)

    def foreign_cluster(self) -> str | None:
        """A message about a controller that answered with another cluster id; None if no controller did."""
        return self._peers.foreign

    def _open_streams(self) -> FetchStreams:
        from klamm.raft.driver.streams import FetchStreams  # A single-node quorum does not fetch.

        return FetchStreams(
            self.log.native, self._peers.route, flushes=self._config.is_controller, conditions=self._conditions
        )

    def _open_answers(self) -> FetchAnswers:
        native = quorum.FetchAnswers(self.log.native, self._engine)
        take_timeout_ms = self._config.integer("controller.quorum.fetch.timeout.ms")
        return NativeFetchAnswers(native, self._key, self._cluster_id, take_timeout_ms)

    def _on_peer_crashed(self, node_id: int) -> None:
        self.raft.on_peer_crashed(node_id)

    def _on_peer_refused(self, node_id: int) -> None:
        self.raft.on_peer_refused(node_id)

    # Callbacks of raft

    def on_commit(self, high_watermark: int) -> None:
        """All records below the high watermark are committed: apply them to the image and publish it."""
        if high_watermark <= self._applied:
            return
        before = self.image.stable
        image, applied = (
            self._whole if self._whole and self._whole[1] <= high_watermark else (self.image, self._applied)
        )
        self.image = self.log.native.replay(image, applied, high_watermark)
        self._applied, self._whole = high_watermark, None
        self.kraft_version = self.raft.voters_below(high_watermark).kraft_version
        self._on_published(before, self.image.stable)

    def on_leader(self, epoch: int) -> None:
        """This node became the active controller."""
        assert self.controller is not None, "an observer cannot be elected"
        bootstrap = self._bootstrap() if self.image.metadata_version is None else []
        self.controller.on_leader(epoch, self.image, self.log.end_offset, bootstrap, self.kraft_version)
        self.is_active.set()
        asyncio.get_running_loop().call_soon(self.on_active)

    def _bootstrap(self) -> Sequence[bytes]:
        if self._bootstrap_file.exists():
            return quorum.read_checkpoint(self._bootstrap_file)
        from klamm.formats.storage import bootstrap_records

        # Without the file, Kafka 4 takes its latest production level (`BootstrapDirectory`).
        return bootstrap_records({METADATA_VERSION: SUPPORTED_FEATURES[METADATA_VERSION].max_version})

    def on_not_leader(self, epoch: int) -> None:
        """This node is not the active controller (any more)."""
        self.is_active.clear()
        if self.controller is not None:
            self.controller.on_not_leader()

    def write_snapshot(self, snapshot_id: OffsetAndEpoch) -> Awaitable[None] | None:
        """Write the current committed image as that snapshot in a thread, unless it has no metadata.version yet."""
        image = self.image.stable
        if image.metadata_version is None:
            return None
        head = snapshot_head(self.raft.voters_below(snapshot_id.offset))
        return self._write_snapshot(snapshot_id, image, head)

    async def load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Load the image of the received snapshot in a thread."""
        path = self.log.native.received_snapshot_path()
        if path is None:
            raise FileNotFoundError(f"snapshot {snapshot_id} is no longer being received")
        self._loaded = snapshot_id, await asyncio.to_thread(quorum.load_snapshot, path, *snapshot_id)

    def on_snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """Continue from the loaded image with the next commit."""
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded[0] != snapshot_id:
            raise StateFailedError(f"snapshot {snapshot_id} is installed, but {loaded and loaded[0]} was loaded")
        self._whole = loaded[1], snapshot_id.offset

    async def _write_snapshot(
        self, snapshot_id: OffsetAndEpoch, image: Image, head: Sequence[tuple[int, bytes]]
    ) -> None:
        native = self.log.native
        await asyncio.to_thread(
            quorum.write_snapshot,
            native.snapshot_path(snapshot_id.offset, snapshot_id.epoch),
            image,
            epoch=snapshot_id.epoch,
            last_contained_log_timestamp_ms=image.last_timestamp_ms,
            now_ms=wall_clock_ms(),
            control_records=head,
        )
        native.snapshot_finished(snapshot_id.offset, snapshot_id.epoch)

    def on_fault(self, error: Exception) -> None:
        """The replica stopped permanently, so the node stops too."""
        is_of_disk = isinstance(error, MetadataLogError)
        directory = self._config.metadata_log_dir
        self._on_fault(MetadataLogError(metadata_directory_failed(directory, str(error))) if is_of_disk else error)

    async def leave(self, *, hand_over: bool) -> None:
        """Leave the quorum, after handing over leadership if `hand_over`."""
        self.active_controller.close()
        if self.controller is not None:
            self.controller.close()
        await self.raft.close(hand_over=hand_over)
        # Close now: another node that stops waits briefly for the nodes that are connected to it.
        self._peers.close()

    def close(self) -> None:
        """Close the metadata log."""
        self.log.close()


class LazyTransport:
    """Implements `klamm.raft.ports.Transport`.

    Its modules are imported on first use: a single-node quorum needs none.
    """

    def __init__(
        self,
        config: NodeConfig,
        on_crashed: Callable[[int], None],
        on_refused: Callable[[int], None],
        conditions: Conditions | None,
    ) -> None:
        self._config, self._on_crashed, self._on_refused = config, on_crashed, on_refused
        self._conditions = conditions
        self._transport: PeerTransport | None = None

    def send(self, request: SendRequest, on_done: Callable[[Response | None], None]) -> None:
        """Send to another replica."""
        if self._transport is None:
            self._transport = self._open()
        self._transport.send(request, on_done)

    @property
    def foreign(self) -> str | None:
        """See `PeerTransport.foreign`."""
        return None if self._transport is None else self._transport.foreign

    def route(self, request: SendRequest) -> Route | None:
        """See `PeerTransport.route`."""
        return None if self._transport is None else self._transport.route(request)

    def _open(self) -> PeerTransport:
        from klamm.client.network import EngineNetwork
        from klamm.client.peer import PeerConfig
        from klamm.raft.driver.peers import PeerTransport

        config = self._config
        client = PeerConfig(
            f"raft-client-{config.node_id}",
            request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
            connection_setup_timeout_ms=config.integer("socket.connection.setup.timeout.ms"),
            connection_setup_timeout_max_ms=config.integer("socket.connection.setup.timeout.max.ms"),
        )
        return PeerTransport(
            config.controller_listener_names[0],
            client,
            self._on_crashed,
            self._on_refused,
            network=EngineNetwork(conditions=self._conditions),
        )

    def close(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            self._transport.close()


def _own_endpoints(config: NodeConfig, booted: Booted) -> tuple[Endpoint, ...]:
    """The advertised controller endpoints, with the ports that the system chose."""
    return tuple(
        Endpoint(one.name, _host(one), one.port or booted.listeners[one.name][1])
        for one in config.advertised_controllers
        if one.name in booted.listeners
    )


def _host(listener: Listener) -> str:
    """As in Apache Kafka, a listener on all interfaces is advertised with the host name."""
    if not listener.is_open:
        return listener.host

    return socket.getfqdn()


def _raft_config(config: NodeConfig) -> RaftConfig:
    return RaftConfig(
        election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        fetch_max_bytes=config.integer("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        crash_detection=config.boolean("klamm.crash.detection"),
        never_votes=not config.is_controller,
        fetches_go_on=True,
        fetches_leased=config.is_controller,
        auto_join=config.is_controller and config.boolean("controller.quorum.auto.join.enable"),
        bootstrap_servers=tuple(
            Endpoint(config.controller_listener_names[0], *address) for address in config.bootstrap_controllers
        ),
    )


def _snapshot_config(config: NodeConfig) -> SnapshotConfig:
    return SnapshotConfig(
        record_bytes_between_snapshots_max=config.integer("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms_max=config.integer("metadata.log.max.snapshot.interval.ms"),
        retention_bytes_max=config.integer("metadata.max.retention.bytes"),
        retention_ms_max=config.integer("metadata.max.retention.ms"),
    )
