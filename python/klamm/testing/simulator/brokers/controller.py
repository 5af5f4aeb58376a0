"""The real controller in the simulation, with the metadata log in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, assert_never

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller
from klamm.controller.effects import Append, Effect, Reply, UpgradeKraftVersion
from klamm.controller.settings import ControllerSettings
from klamm.protocol.errors import ErrorCode
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, decode, encode
from klamm.testing.simulator.brokers.network import CONTROLLER, Node
from klamm.testing.simulator.brokers.unread_heartbeats import UnreadHeartbeats

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation
    from klamm.testing.simulator.cuts import Pair
    from klamm.testing.simulator.timeline import Timeline

CLUSTER_ID: Final = "c2ltdWxhdGVkYnJva2Vycw"
COMMIT_US: Final = 300


class Asked(NamedTuple):
    """A request to the controller."""

    operation: Operation[Any, Any]
    request: Any
    version: int


class ControllerNode(Node, Protocol):
    """A controller as brokers see it."""

    def ask(self, asked: Asked, reply: Callable[[Any], None]) -> None:
        """Handle a request that has arrived."""

    def if_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, skipped if the process has ended by then; not later if it is paused."""

    @property
    def committed(self) -> tuple[int, Image]:
        """The newest image that it knows to be committed, and the offset after its last record."""


class Controllers(Protocol):
    """One controller, or a quorum of them."""

    on_committed: Callable[[], None]
    on_appended: Callable[[Image, Image], None]
    unread: UnreadHeartbeats

    @property
    def ids(self) -> list[int]:
        """The nodes."""

    @property
    def image(self) -> Image:
        """The newest image that the checks may know, committed or not."""

    @property
    def committed(self) -> tuple[int, Image]:
        """The newest committed image, and the offset after its last record."""

    def chosen_by(self, asker_id: int) -> ControllerNode:
        """The controller that this node takes for the active one."""

    def on_failed(self, asker_id: int) -> None:
        """That controller did not answer, or is not the active one."""

    def begin_faults(self) -> None:
        """From now on faults happen to controllers."""

    def on_cut(self, cut: set[Pair]) -> None:
        """These links of the network are cut."""

    def pause(self, duration_us: int) -> None:
        """The process of a controller is stopped for a while: what comes meanwhile waits."""

    def heal(self) -> None:
        """End the faults of controllers."""


class SimulatedController:
    """Decides requests, and responds once its records are committed. It never ends, but may be paused."""

    id = CONTROLLER

    def __init__(self, timeline: Timeline, settings: Mapping[str, str], features: Mapping[str, int]) -> None:
        self._timeline = timeline
        self.controller = Controller(
            ControllerSettings(node_id=CONTROLLER, cluster_id=CLUSTER_ID, static=settings), timeline.rng.randbytes
        )
        self.images: list[tuple[int, Image]] = [(0, Image())]  # end offset and image, for each batch
        self.committed_count = 1  # of these
        self.paused_until_us = 0
        self.unread = UnreadHeartbeats()
        self.on_committed: Callable[[], None] = lambda: None
        self.on_appended: Callable[[Image, Image], None] = lambda before, after: None
        self._armed_ms: int | None = None
        bootstrap = [encode(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()]
        self._carry_out(self.controller.on_leader(self.now_ms, self.image, 0, bootstrap, 0))
        self._arm()

    @property
    def ids(self) -> list[int]:
        """The only node."""
        return [self.id]

    def chosen_by(self, asker_id: int) -> ControllerNode:
        """The only controller."""
        return self

    def on_failed(self, asker_id: int) -> None:
        """There is no other one."""

    def begin_faults(self) -> None:
        """It has none."""

    def on_cut(self, cut: set[Pair]) -> None:
        """It has no other controllers."""

    def pause(self, duration_us: int) -> None:
        """Stop the process for a while."""
        # A pause that begins in another one does not shorten it: what waits would be overtaken.
        self.paused_until_us = max(self.paused_until_us, self._timeline.now_us + duration_us)
        self._timeline.say(f"the controller is paused until {self.paused_until_us / 1000:.3f} ms")

    def heal(self) -> None:
        """No fault of it lasts."""

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`, later if the process is paused then."""
        return partial(self._step, act)

    def _step(self, act: Callable[[], None]) -> None:
        left_us = self.paused_until_us - self._timeline.now_us
        if left_us > 0:
            self._timeline.at(left_us, partial(self._step, act))
        else:
            act()

    def if_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """`act`: it never ends."""
        return act

    @property
    def now_ms(self) -> int:
        """Its clock."""
        return self._timeline.now_us // 1000

    @property
    def image(self) -> Image:
        """The newest image, committed or not."""
        return self.images[-1][1]

    @property
    def committed(self) -> tuple[int, Image]:
        """The newest committed image, and the offset after its last record."""
        return self.images[self.committed_count - 1]

    def ask(self, asked: Asked, reply: Callable[[Any], None]) -> None:
        """Handle a request that has arrived."""
        self._carry_out(self.controller.on_request(self.now_ms, reply, asked.operation, asked.request, asked.version))
        self._arm()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._append(effect.records)
                case Reply(ticket, response):
                    self._timeline.at(COMMIT_US, self.while_alive(partial(ticket, response)))
                case UpgradeKraftVersion():
                    self.controller.on_kraft_version(effect.level)
                case _:
                    assert_never(effect)

    def _append(self, records: Sequence[bytes]) -> None:
        first_offset, image = self.images[-1]
        if self._timeline.trace is not None:
            for record in records:
                self._timeline.say(f"controller: {decode(record)}")
        self.controller.replay(records, first_offset)
        after = image.apply(records)
        self.images.append((first_offset + len(records), after))
        self.on_appended(image, after)
        count = len(self.images)

        def commit() -> None:
            self.committed_count = max(self.committed_count, count)
            self.on_committed()

        self._timeline.at(COMMIT_US, self.while_alive(commit))

    def _arm(self) -> None:
        due_ms = self.controller.deadline_ms
        if due_ms is None or due_ms == self._armed_ms:
            return
        self._armed_ms = due_ms

        def wake() -> None:
            if self._armed_ms != due_ms:
                return
            self._armed_ms = None
            effects = self.controller.on_timer(self.now_ms, is_followed=True)
            for effect in effects:
                if isinstance(effect, Append):
                    self.unread.check(self.id, effect.records)
            self._carry_out(effects)
            self._arm()

        self._timeline.at(max(0, 1000 * due_ms - self._timeline.now_us), self.while_alive(wake))


def is_of_another_controller(answer: Any) -> bool:
    """Whether the answer says that its sender is not the active controller."""
    found = (answer, *getattr(answer, "topics", ()), *getattr(answer, "responses", ()))
    return any(getattr(each, "error_code", None) is ErrorCode.NOT_CONTROLLER for each in found)
