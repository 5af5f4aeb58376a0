"""Three controllers in the simulation: raft replicas with the product's driver, and the product's controller on each.

The time, the random numbers and the cuts of the network are those of the brokers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller
from klamm.controller.driver import ControllerDriver
from klamm.controller.settings import ControllerSettings
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, encode
from klamm.raft.config import RaftConfig
from klamm.testing.simulator import faults as raft_faults
from klamm.testing.simulator.brokers.controller import CLUSTER_ID, Asked
from klamm.testing.simulator.brokers.unread_heartbeats import UnreadHeartbeats
from klamm.testing.simulator.memory_log import DATA
from klamm.testing.simulator.simulated_replica import SimulatedReplica
from klamm.testing.simulator.world import World

if TYPE_CHECKING:
    from klamm.testing.simulator.brokers.scene import Scene
    from klamm.testing.simulator.cuts import Pair

COUNT: Final = 3
FIRST_ID: Final = 100
"""Replica 1 of the quorum is node 101."""
SLOW_US: Final = 20_000
HASTE: Final = 2.5


class WatchedDriver(ControllerDriver):
    """Nothing excuses a failure of a controller."""

    failures: list[AssertionError]
    """Failed turns: the timer catches what they raise."""
    check_timed: Callable[[Sequence[bytes]], None]
    """Check what it decides because some time has passed."""
    _is_timed = False

    def _on_timer(self) -> None:
        self._is_timed = True
        super()._on_timer()
        self._is_timed = False

    def _append(self, records: Sequence[bytes]) -> None:
        if self._is_timed:
            self.check_timed(records)
        super()._append(records)

    def _fail(self, operation: str) -> NoReturn:
        failure = AssertionError(f"{operation} failed: {sys.exception()!r}")
        self.failures.append(failure)
        raise failure from sys.exception()


class ControllerReplica(SimulatedReplica):
    """A replica with the image of what it has applied, and a controller that is active while it leads."""

    quorum: ControllerQuorum

    def start(self, seed: int) -> None:
        """Start a life."""
        self.image = Image()
        self._controller: WatchedDriver | None = None
        self.quorum.unread.on_started(FIRST_ID + self.id)
        super().start(seed)

    def on_commit(self, high_watermark: int) -> None:
        """See `klamm.raft.ports.Listener`."""
        super().on_commit(high_watermark)
        self.image = self.quorum.on_applied(self)

    def on_leader(self, epoch: int) -> None:
        """See `klamm.raft.ports.Listener`."""
        super().on_leader(epoch)
        if self._controller is None:
            self._controller = WatchedDriver(self.quorum.new_controller(self.id), self._running_driver)
            self._controller.failures = self.quorum.raft.failures
            self._controller.check_timed = partial(self.quorum.unread.check, FIRST_ID + self.id)
        self._controller.on_leader(epoch, self.image, self.applied, self.quorum.bootstrap, kraft_version=0)

    def on_not_leader(self, epoch: int) -> None:
        """See `klamm.raft.ports.Listener`."""
        super().on_not_leader(epoch)
        if self._controller is not None:
            self._controller.on_not_leader()

    def ask_controller(self, asked: Asked, reply: Callable[[Any], None]) -> None:
        """Handle a request that has arrived."""
        operation, request, version = asked
        controller = self._controller
        if controller is None or controller.epoch is None:
            reply(operation.refuse(request, ErrorCode.NOT_CONTROLLER, "it does not lead"))
            return
        task = self._loop.create_task(controller.run(operation, request, version))
        task.add_done_callback(lambda done: None if done.cancelled() else reply(done.result()))


class RaftWorld(World):
    """A quorum on the timeline of another simulation, without clients of its own."""

    def __init__(self, scene: Scene, faults: raft_faults.Faults, config: RaftConfig) -> None:
        self._scene = scene
        self._paused_until_us: dict[int, int] = {}
        self.failures: list[AssertionError] = []
        super().__init__(scene.rng, COUNT, 0, faults, config, new_replica=ControllerReplica)

    @property
    def now_us(self) -> int:
        """The time of the other simulation."""
        return self._scene.now_us

    @now_us.setter
    def now_us(self, value: int) -> None:
        pass

    @property
    def trace(self) -> list[str] | None:
        """The trace of the other simulation."""
        return self._scene.trace

    @trace.setter
    def trace(self, value: list[str] | None) -> None:
        pass

    def at(self, delay_us: int, happen: Callable[[], None]) -> None:
        """Schedule an event."""
        self._scene.at(delay_us, happen)

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        self._scene.say(f"quorum: {text}" if text else "")

    def step(self, replica: SimulatedReplica, act: Callable[[], None]) -> None:
        """Run a step of a replica, later if its process is paused."""
        left_us = self._paused_until_us.get(replica.id, 0) - self.now_us
        if left_us > 0 and replica.is_up:
            self.at(left_us, self.while_alive(replica, act))
            return
        super().step(replica, act)
        if self.failures:
            raise self.failures[0]

    def pause(self, replica: SimulatedReplica, duration_us: int) -> None:
        """Stop the process of a replica for a while."""
        self._paused_until_us[replica.id] = max(self._paused_until_us.get(replica.id, 0), self.now_us + duration_us)
        self.say(f"{replica.id} is paused for {duration_us / 1000:.3f} ms")

    def start_replica(self, replica: SimulatedReplica) -> None:
        """Start a stopped replica; the process of before was perhaps paused."""
        if not replica.is_up:
            self._paused_until_us.pop(replica.id, None)
        super().start_replica(replica)

    def begin_faults(self) -> None:
        """From now on faults happen."""
        self._begin_faults()

    def start_all(self) -> None:
        """Start the replicas."""
        for replica in self.replicas.values():
            self.start_replica(replica)


class ControllerNode:
    """A controller as brokers see it."""

    def __init__(self, raft: RaftWorld, replica: ControllerReplica) -> None:
        self.id = FIRST_ID + replica.id
        self._raft, self._replica = raft, replica

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act` as a step of the process, skipped if it has ended by then."""
        return self._raft.while_alive(self._replica, act)

    def if_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, skipped if the process has ended by then; not later if it is paused."""
        life = self._replica.life
        return lambda: act() if self._replica.is_up and self._replica.life == life else None

    def ask(self, asked: Asked, reply: Callable[[Any], None]) -> None:
        """Handle a request that has arrived."""
        self._replica.run(lambda: self._replica.ask_controller(asked, reply))

    @property
    def committed(self) -> tuple[int, Image]:
        """What it knows to be committed, and the offset after that."""
        return self._replica.applied, self._replica.image


class ControllerQuorum:
    """The quorum as the brokers, the operator and the checks see it."""

    def __init__(self, scene: Scene, settings: Mapping[str, str], features: Mapping[str, int]) -> None:
        self._scene, self._settings = scene, settings
        self.bootstrap = [
            encode(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()
        ]
        is_slow = scene.faults.delay_us_max > SLOW_US
        timeout_ms = 500 if is_slow else 100
        config = RaftConfig(
            election_timeout_ms=timeout_ms,
            fetch_timeout_ms=2 * timeout_ms,
            request_timeout_ms=2 * timeout_ms,
            fetch_max_wait_ms=50,
            fetches_go_on=scene.rng.random() < 0.5,
            fetches_leased=scene.rng.random() < 0.5,
        )
        self._drawn = _draw(scene)
        self.raft = RaftWorld(scene, raft_faults.Faults(), config)
        self.nodes: list[ControllerNode] = []
        for replica in self.raft.replicas.values():
            assert isinstance(replica, ControllerReplica)
            replica.quorum = self
            self.nodes.append(ControllerNode(self.raft, replica))
        self._chosen: dict[int, int] = {}  # by asker, the number of the controller that it asks
        self.committed: tuple[int, Image] = (0, Image())
        self._images: dict[int, Image] = {0: Image()}  # by offset
        self.unread = UnreadHeartbeats()
        self.on_committed: Callable[[], None] = lambda: None
        self.on_appended: Callable[[Image, Image], None] = lambda before, after: None
        self.raft.start_all()

    @property
    def ids(self) -> list[int]:
        """The nodes."""
        return [node.id for node in self.nodes]

    @property
    def image(self) -> Image:
        """The newest committed image."""
        return self.committed[1]

    def new_controller(self, node_id: int) -> Controller:
        """The controller of a replica's life."""
        settings = ControllerSettings(node_id=FIRST_ID + node_id, cluster_id=CLUSTER_ID, static=self._settings)
        return Controller(settings, self._scene.rng.randbytes)

    def chosen_by(self, asker_id: int) -> ControllerNode:
        """The controller that this node takes for the active one."""
        return self.nodes[self._chosen.setdefault(asker_id, 0)]

    def on_failed(self, asker_id: int) -> None:
        """That controller did not answer, or is not the active one."""
        self._chosen[asker_id] = (self._chosen.get(asker_id, 0) + 1) % COUNT

    def on_applied(self, replica: ControllerReplica) -> Image:
        """A replica has applied more; the image of all that it has applied."""
        end, image = self.committed
        records, is_news = replica.log.records, end < replica.applied
        while end < replica.applied:
            before, batch = image, records[end].batch_offset
            while end < replica.applied and records[end].batch_offset == batch:
                if records[end].type == DATA:
                    image = image.apply([records[end].value])
                end += 1
                self._images[end] = image
            self.on_appended(before, image)
        if is_news:
            self.committed = end, image
            self.on_committed()
        return self._images[replica.applied]

    # Faults

    def begin_faults(self) -> None:
        """From now on faults happen to the controllers too."""
        self.raft.faults = self._drawn
        self.raft.begin_faults()

    def on_cut(self, cut: set[Pair]) -> None:
        """These links of the network are cut."""
        self.raft.network.cut = {(source - FIRST_ID, target - FIRST_ID) for source, target in cut}

    def pause(self, duration_us: int) -> None:
        """Stop the process of a controller for a while, mostly of the active one."""
        running = [replica for replica in self.raft.replicas.values() if replica.is_up]
        leading = [leader for leader in self.raft.leaders() if leader.is_up]
        if running:
            self.raft.pause(self._scene.rng.choice(leading or running), duration_us)

    def heal(self) -> None:
        """End all faults."""
        self.raft.heal()


def _draw(scene: Scene) -> raft_faults.Faults:
    drawn = raft_faults.draw(scene.rng, [])
    drawn.hasten(HASTE)
    return replace(
        drawn,
        drop_chance=scene.faults.drop_chance,
        delay_us_max=scene.faults.delay_us_max,
        partition_every_us=0,  # the whole network is cut into parts
        snapshot_every_us=0,
        wipe_every_us=0,
        clock_jump_every_us=0,
        clock_rates={},
    )
