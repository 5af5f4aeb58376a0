"""One simulated broker: its life cycle, its engine, and the requests by which it takes part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from klamm._engine.metadata import Image
from klamm._engine.simulation import SimulatedBroker
from klamm.broker.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    Effect,
    Heartbeat,
    LogDirFailureOverdue,
    Register,
    RegistrationOverdue,
    StateChanged,
)
from klamm.controller.operations.nodes import BROKER_HEARTBEAT, BROKER_REGISTRATION
from klamm.controller.operations.replicas import ALTER_PARTITION
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    supported,
)
from klamm.testing.simulator.brokers.controller import CLUSTER_ID, Asked, is_of_another_controller
from klamm.testing.simulator.brokers.coordinators import Coordinators
from klamm.testing.simulator.brokers.directories import Directories
from klamm.testing.simulator.brokers.history import batches_of
from klamm.testing.simulator.brokers.network import Repeated, Reply, Request
from klamm.testing.simulator.brokers.replication import Replication, TransactionalBatch

if TYPE_CHECKING:
    from klamm.config.node_config import NodeConfig
    from klamm.testing.simulator.brokers.fetch_session import Fetch
    from klamm.testing.simulator.brokers.history import Key
    from klamm.testing.simulator.brokers.scene import Scene

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1


class Broker:
    """A broker that is down, or in one of its lives."""

    def __init__(
        self,
        scene: Scene,
        node_id: int,
        folder: Path,
        settings: Mapping[str, str],
        without: str | None = None,
        *,
        dir_count: int = 1,
        may_be_damaged: bool = False,
        node_config: NodeConfig | None = None,
        has_shares: bool = False,
    ) -> None:
        """With a `node_config` it has coordinators; `has_shares`: there are share groups."""
        self._node_config, self._has_shares = node_config, has_shares
        self.coordinators: Coordinators | None = None
        self._scene, self._may_be_damaged = scene, may_be_damaged
        self.id = node_id
        self.settings = settings
        self.directory_ids = [(1000 * (dir + 1) + node_id).to_bytes(16, "big") for dir in range(dir_count)]
        self.engine = SimulatedBroker(node_id, self.directory_ids, folder, settings, without)
        self.failed_dirs: set[int] = set()  # in this life
        self.life = 0
        self.is_up = False
        self.paused_until_us = 0
        self.stalled_until_us = 0  # until then it fetches no metadata
        self.is_serving = False
        self._previous_epoch = -1
        self._lifecycle: BrokerLifecycle | None = None
        self._armed_ms: int | None = None
        self.applied_end = 0
        self.image = Image()
        self.replication = Replication(scene, self)
        self.directories = self._new_directories()

    def _new_directories(self) -> Directories:
        has_several = len(self.directory_ids) > 1
        return Directories(self._scene, self, has_several=has_several, may_be_damaged=self._may_be_damaged)

    # Lives

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, skipped if this life has ended by then, later if the process is paused then."""
        return partial(self._step, self.life, act)

    def _step(self, life: int, act: Callable[[], None]) -> None:
        if not self.is_up or self.life != life:
            return
        if self._scene.now_us < self.paused_until_us:
            self._scene.at(self.paused_until_us - self._scene.now_us, partial(self._step, life, act))
            return
        if self.coordinators is not None:
            self.coordinators.run(act, self.replication.pump)
        else:
            act()
            if self.is_up and self.life == life:
                self.replication.pump()
        if self.is_up and self.life == life:
            self._scene.check(self.id)

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Schedule a step of this life."""
        self._scene.at(delay_us, self.while_alive(act))

    @property
    def now_ms(self) -> int:
        """Its clock."""
        return self._scene.now_us // 1000

    def number(self, key: str) -> int:
        """A number of its configuration."""
        return int(self.settings[key])

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 before it is registered."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    def start(self) -> None:
        """Begin a life."""
        self.life += 1
        self.is_up, self.is_serving, self.paused_until_us = True, False, 0
        self.replication = Replication(self._scene, self)
        self.directories = self._new_directories()
        if self._node_config is not None:
            self.coordinators = Coordinators(self._scene, self, self._node_config, has_shares=self._has_shares)
        self.failed_dirs = set()
        self._armed_ms = None
        self._previous_epoch = self.engine.start(self.now_ms)
        self._scene.say(f"broker {self.id} starts" + (" after a clean shutdown" if self._previous_epoch >= 0 else ""))
        # Its own metadata log ends where it ended before.
        self.directories.assign(self.engine.publish(self.image, self.now_ms))
        self._incarnation = self._scene.rng.randbytes(16)
        self._lifecycle = BrokerLifecycle(
            self.number("broker.heartbeat.interval.ms"),
            self.number("broker.session.timeout.ms"),
            60_000_000,
            60_000_000,
            self._scene.rng.random,
        )
        self.while_alive(self._begin)()

    def _begin(self) -> None:
        assert self._lifecycle is not None
        self._carry_out(self._lifecycle.on_start(self.now_ms))
        self._poll_metadata()
        self._check_lag()
        self._checkpoint()
        self._retain()
        self.directories.begin()

    def kill(self) -> None:
        """End the process; its files stay."""
        self._scene.say(f"broker {self.id} is killed")
        self._end()
        self.engine.kill()

    def cut_power(self) -> None:
        """End the machine; part of the unsynced data is lost."""
        self._scene.say(f"the power of broker {self.id} is cut")
        self._end()
        self.engine.cut_power(self._scene.rng.randrange(1 << 60))
        self._scene.on_power_cut(self.id)

    def cut_power_while_cleaning(self) -> None:
        """End the machine while it cleans its compacted logs."""
        self._scene.say(f"the power of broker {self.id} is cut while it cleans")
        self._end()
        self.engine.cut_power_while_cleaning(self._scene.rng.randrange(1 << 60), self.now_ms)
        self._scene.on_power_cut(self.id)
        self._scene.on_stopped(self.id)

    def _end(self) -> None:
        self.is_up = False
        if self.coordinators is not None:
            self.coordinators.forget()
        self._scene.on_ended(self.id)

    def begin_shutdown(self) -> None:
        """Ask for a controlled shutdown."""

        def begin() -> None:
            assert self._lifecycle is not None
            self._carry_out(self._lifecycle.on_shutdown_asked(self.now_ms))

        self.while_alive(begin)()

    def _stop(self) -> None:
        self._scene.say(f"broker {self.id} stops")
        epoch = self.epoch
        self._end()
        self.engine.shut_down(epoch)
        self._scene.on_stopped(self.id)

    # The life cycle

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Register():
                    self._register()
                case Heartbeat():
                    self._send_heartbeat(effect)
                case StateChanged(BrokerState.SHUTTING_DOWN):
                    self.later(0, self._stop)
                case StateChanged():
                    pass
                case RegistrationOverdue() | LogDirFailureOverdue():
                    raise AssertionError(f"broker {self.id} gives up: {effect}")
                case _:
                    assert_never(effect)
        self._arm()

    def _arm(self) -> None:
        assert self._lifecycle is not None
        due_ms = self._lifecycle.deadline_ms
        if due_ms is None or due_ms == self._armed_ms:
            return
        self._armed_ms = due_ms

        def wake() -> None:
            if self._armed_ms == due_ms and self._lifecycle is not None:
                self._armed_ms = None
                self._carry_out(self._lifecycle.on_timer(self.now_ms))

        self.later(max(0, 1000 * due_ms - self._scene.now_us), wake)

    def ask_controller(
        self,
        asked: Asked,
        on_answer: Callable[[Any], None],
        on_failure: Callable[[], None],
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        """Send a request to the controller."""
        controllers = self._scene.controller
        controller = controllers.chosen_by(self.id)
        is_heartbeat = asked.operation is BROKER_HEARTBEAT
        heartbeat = controller.id, self.id, self.epoch

        def ask(reply: Reply) -> None:
            if is_heartbeat:
                controllers.unread.on_read(*heartbeat)
            if not is_lost():
                controller.ask(asked, reply)

        def answered(answer: Any) -> None:
            if is_of_another_controller(answer):
                controllers.on_failed(self.id)
            on_answer(answer)

        def failed() -> None:
            controllers.on_failed(self.id)
            on_failure()

        timeout_us = 1000 * self.number("broker.heartbeat.interval.ms")
        repeated = Repeated.PROPOSAL if asked.operation is ALTER_PARTITION else None
        arrived = controller.if_alive(lambda: controllers.unread.on_arrived(*heartbeat)) if is_heartbeat else None
        self._scene.network.call(self, controller, Request(ask, answered, failed, timeout_us, repeated, arrived))

    def _register(self) -> None:
        lifecycle = self._lifecycle
        assert lifecycle is not None
        request = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._incarnation,
            listeners=(Listener("PLAINTEXT", f"broker{self.id}", 9092),),
            features=supported(SUPPORTED_FEATURES),
            log_dirs=tuple(self.directory_ids),
            previous_broker_epoch=self._previous_epoch,
        )

        def answered(answer: Any) -> None:
            if answer.error_code is not ErrorCode.NONE:
                self._carry_out(lifecycle.on_failure(self.now_ms))
                return
            self._scene.say(f"broker {self.id} is registered with epoch {answer.broker_epoch}")
            self._carry_out(lifecycle.on_registered(self.now_ms, answer.broker_epoch))
            self._carry_out(lifecycle.on_ready(self.now_ms))

        life = self.life
        self.ask_controller(
            Asked(BROKER_REGISTRATION, request, REGISTRATION_VERSION),
            answered,
            lambda: self._carry_out(lifecycle.on_failure(self.now_ms)),
            # A known weakness, as in Apache Kafka: a registration that arrives after that of the broker's next
            # incarnation replaces it, if no heartbeat has come yet.
            is_lost=lambda: self.life != life,
        )

    def _send_heartbeat(self, beat: Heartbeat) -> None:
        lifecycle = self._lifecycle
        assert lifecycle is not None
        request = BrokerHeartbeatRequest(
            self.id,
            beat.broker_epoch,
            self.applied_end - 1,
            beat.want_fence,
            beat.want_shut_down,
            offline_log_dirs=beat.offline_log_dirs,
        )

        def answered(answer: Any) -> None:
            if answer.error_code is not ErrorCode.NONE:
                self._carry_out(lifecycle.on_failure(self.now_ms))
                return
            self._carry_out(
                lifecycle.on_heartbeat_answer(
                    self.now_ms,
                    caught_up=answer.is_caught_up,
                    fenced=answer.is_fenced,
                    should_shut_down=answer.should_shut_down,
                )
            )
            self._maybe_serve()

        asked = Asked(BROKER_HEARTBEAT, request, HEARTBEAT_VERSION)
        self.ask_controller(asked, answered, lambda: self._carry_out(lifecycle.on_failure(self.now_ms)))

    # Metadata

    def _poll_metadata(self) -> None:
        """Fetch the metadata log repeatedly: committed records are fetched sooner, unless messages are lost."""
        self.later(50_000 + self._scene.rng.randrange(200_000), self._poll_metadata)
        self.fetch_metadata()

    def fetch_metadata(self) -> None:
        """Fetch the committed records of the metadata log."""
        controller = self._scene.controller.chosen_by(self.id)
        if self._scene.controller.committed[0] > self.applied_end and self._scene.now_us >= self.stalled_until_us:
            timeout_us = self._scene.request_timeout_us
            request = Request(lambda reply: reply(controller.committed), self.apply, lambda: None, timeout_us)
            self._scene.network.call(self, controller, request)

    def apply(self, found: tuple[int, Image]) -> None:
        """A committed image has arrived."""
        end, image = found
        if end <= self.applied_end:
            return
        before, self.applied_end, self.image = self.image, end, image
        self.directories.assign(self.engine.publish(image, self.now_ms))
        if self.coordinators is not None:
            self.coordinators.on_published(before, image)
        lifecycle = self._lifecycle
        assert lifecycle is not None
        leaving = [image.broker(each) for each in image.broker_ids() if each != self.id]
        is_another_leaving = any(one is not None and one.in_controlled_shutdown and not one.fenced for one in leaving)
        self._carry_out(lifecycle.on_published(self.now_ms, is_another_leaving=is_another_leaving))
        self._maybe_serve()

    def _maybe_serve(self) -> None:
        own, lifecycle = self.image.broker(self.id), self._lifecycle
        if self.is_serving or lifecycle is None or lifecycle.state is not BrokerState.RUNNING:
            return
        if own is not None and own.epoch == self.epoch and not own.fenced:
            self.is_serving = True
            self.engine.open_the_rest(self.now_ms)
            if self.coordinators is not None:
                self.coordinators.start()

    # Coordinators

    def verify(self, batch: TransactionalBatch, done: Callable[[int], None]) -> None:
        """Ask the transaction coordinator for a batch that begins a transaction here."""
        assert self.coordinators is not None, "transactions need coordinators"
        self.coordinators.verify(batch, done)

    def answer(self, api_key: int, version: int, body: bytes, reply: Reply) -> None:
        """A request of another broker's coordinators has arrived."""
        if self.coordinators is not None:
            self.coordinators.answer(api_key, version, body, reply)

    def on_pruned(self, key: Key, offset: int) -> None:
        """A coordinator has deleted the records below this offset."""
        self._scene.on_deleting(self.id, key, offset)

    # Leading

    def on_fetch(self, fetch: Fetch, reply: Reply) -> None:
        """A follower's fetch has arrived."""
        self.replication.on_fetch(fetch, reply)

    def leader_offsets(self, key: Key, leader_epoch: int) -> tuple[int, int] | None:
        """A follower asks where this log begins and ends."""
        return self.replication.leader_offsets(key, leader_epoch)

    def read(self, key: Key, offset: int, end: int) -> bytes | None:
        """Batches from an offset on, up to another one, as a consumer reads them; None: it has not all of them."""
        found = b""
        while self.is_serving and offset < end:
            code, _, data = self.engine.consume(key, offset, -1, self.now_ms)
            batches = batches_of(data) if code == 0 else []
            if not batches:
                return None
            offset, found = batches[-1].end_offset, found + data
        return found or None

    # Log directories

    def fail_directory(self, dir: int) -> None:
        """A directory fails, until the next life."""

        def fail() -> None:
            lifecycle = self._lifecycle
            assert lifecycle is not None
            self._scene.say(f"directory {dir} of broker {self.id} fails")
            self.failed_dirs.add(dir)
            self.engine.fail_dir(dir)
            self._carry_out(lifecycle.on_log_dir_failed(self.now_ms, self.directory_ids[dir]))

        self.while_alive(fail)()

    def move_replica(self, topic: str, index: int, dir: int) -> None:
        """An operator asks for another directory."""

        def move() -> None:
            code = self.engine.move_replica(topic, index, dir, self.now_ms)
            self._scene.say(f"broker {self.id} moves partition {index} to directory {dir}: {ErrorCode(code).name}")

        self.while_alive(move)()

    # Periodic work

    def _check_lag(self) -> None:
        self.later(500 * self.number("replica.lag.time.max.ms"), self._check_lag)
        self.engine.check_lag(self.now_ms)

    def _checkpoint(self) -> None:
        self.later(500_000 + self._scene.rng.randrange(2_000_000), self._checkpoint)
        self.engine.checkpoint()

    def _retain(self) -> None:
        self.later(500_000 + self._scene.rng.randrange(2_000_000), self._retain)
        self.engine.retain(self.now_ms)
