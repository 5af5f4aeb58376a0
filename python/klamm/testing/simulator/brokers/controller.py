"""The real controller in the simulation, with the metadata log in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller
from klamm.controller.effects import Append, Effect, Reply, UpgradeKraftVersion
from klamm.controller.settings import ControllerSettings
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, decode, encode
from klamm.testing.simulator.brokers.network import CONTROLLER

if TYPE_CHECKING:
    from klamm.controller.operations.operation import Operation
    from klamm.testing.simulator.timeline import Timeline

CLUSTER_ID: Final = "c2ltdWxhdGVkYnJva2Vycw"
COMMIT_US: Final = 300


class Asked(NamedTuple):
    """A request to the controller."""

    operation: Operation[Any, Any]
    request: Any
    version: int


class SimulatedController:
    """Decides requests, and answers each when what it appended is committed. It never fails."""

    id = CONTROLLER

    def __init__(self, timeline: Timeline, settings: Mapping[str, str], features: Mapping[str, int]) -> None:
        self._timeline = timeline
        self.controller = Controller(
            ControllerSettings(node_id=CONTROLLER, cluster_id=CLUSTER_ID, static=settings), timeline.rng.randbytes
        )
        self.images: list[tuple[int, Image]] = [(0, Image())]  # end offset and image, for each batch
        self.committed_count = 1  # of these
        self.on_committed: Callable[[], None] = lambda: None
        self.on_appended: Callable[[Image, Image], None] = lambda before, after: None
        self._armed_ms: int | None = None
        bootstrap = [encode(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()]
        self._carry_out(self.controller.on_leader(self.now_ms, self.image, 0, bootstrap, 0))
        self._arm()

    def while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """It always lives."""
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
                    self._timeline.at(COMMIT_US, partial(ticket, response))
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

        self._timeline.at(COMMIT_US, commit)

    def _arm(self) -> None:
        due_ms = self.controller.deadline_ms
        if due_ms is None or due_ms == self._armed_ms:
            return
        self._armed_ms = due_ms

        def wake() -> None:
            if self._armed_ms != due_ms:
                return
            self._armed_ms = None
            self._carry_out(self.controller.on_timer(self.now_ms, is_followed=True))
            self._arm()

        self._timeline.at(max(0, 1000 * due_ms - self._timeline.now_us), wake)
