"""A controller on the engine's own image, with a log in memory, and a driver that a test runs step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import Any, assert_never

from klamm._engine.metadata import Image
from klamm.controller.controller import Controller
from klamm.controller.effects import Append, Effect, Reply, UpgradeKraftVersion
from klamm.controller.operations import MODULES, operations_in
from klamm.controller.operations.operation import Operation
from klamm.controller.requester import Requester
from klamm.controller.settings import ControllerSettings
from klamm.protocol.apis import APIS
from klamm.protocol.errors import ErrorCode
from klamm.protocol.features import SUPPORTED_FEATURES
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, MetadataRecord, decode, encode
from klamm.protocol.messages.registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
    SupportedFeature,
)
from klamm.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LATEST = {"metadata.version": 30}
WITH_ELR = {"metadata.version": 30, "eligible.leader.replicas.version": 1}


def uuid(number: int) -> bytes:
    """An id that is not reserved."""
    return number.to_bytes(8, "big") + bytes(7) + b"\x01"


def bootstrap(features: dict[str, int]) -> list[bytes]:
    return [encode(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()]


OPERATIONS: dict[type, Operation[Any, Any]] = {
    one.request: one for module in MODULES for one in operations_in(module).values()
}


class Cluster:
    """One active controller, its log, and a clock that a test moves."""

    def __init__(self, features: dict[str, int] | None = None, **settings: Any) -> None:
        self.settings = ControllerSettings(
            node_id=settings.pop("node_id", 0),
            cluster_id=CLUSTER_ID,
            **settings,
        )
        self.controller = Controller(self.settings, self.random_bytes)
        self.log: list[bytes] = []
        self.answers: dict[object, Any] = {}
        self.kraft_levels: list[int] = []
        self.image = Image()
        self.now_ms = 1_000_000
        self.requester: Requester | None = None
        self.is_followed = True
        self.incarnations: Iterator[int] = count(1)
        self.epochs: dict[int, int] = {}
        self.between_turns: Callable[[], object] = lambda: None
        self.activate(LATEST if features is None else features)

    def random_bytes(self, count: int) -> bytes:
        return Random(len(self.log)).randbytes(count)

    def activate(self, features: dict[str, int]) -> None:
        self.carry_out(self.controller.on_leader(self.now_ms, self.image, len(self.log), bootstrap(features), 0))
        self.take_turns()

    def fail_over(self) -> None:
        """The same log with a new controller, which knows only the log."""
        self.controller = Controller(self.settings, self.random_bytes)
        self.activate({})

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(records):
                    self.append(records)
                case Reply(ticket, response):
                    assert ticket not in self.answers
                    self.answers[ticket] = response
                case UpgradeKraftVersion(level):
                    self.kraft_levels.append(level)
                    self.controller.on_kraft_version(level)
                case _:
                    assert_never(effect)

    def append(self, records: Sequence[bytes]) -> None:
        self.controller.replay(records, len(self.log))
        self.log += records
        self.image = self.image.apply(records)

    def begin(self, request: Any, api_version: int | None = None) -> object:
        """The ticket of a request, which may need more turns."""
        operation, ticket = OPERATIONS[type(request)], object()
        version = APIS[operation.api_key].versions[1] if api_version is None else api_version
        self.carry_out(
            self.controller.on_request(self.now_ms, ticket, operation, request, version, requester=self.requester)
        )
        return ticket

    def ask(self, request: Any, api_version: int | None = None) -> Any:
        """The response to a request."""
        ticket = self.begin(request, api_version)
        while ticket not in self.answers:
            self.between_turns()
            self.take_turn()
        return self.answers.pop(ticket)

    def take_turn(self) -> None:
        self.carry_out(self.controller.on_timer(self.now_ms, is_followed=self.is_followed))

    def take_turns(self) -> None:
        """Run all due turns."""
        while self.controller.deadline_ms is not None and self.controller.deadline_ms <= self.now_ms:
            self.between_turns()
            self.take_turn()

    def register(self, broker_id: int, **changed: Any) -> BrokerRegistrationResponse:
        api_version = changed.pop("api_version", 4)
        request = registration(broker_id, incarnation=next(self.incarnations), **changed)
        answer: BrokerRegistrationResponse = self.ask(request, api_version)
        if answer.error_code is ErrorCode.NONE:
            self.epochs[broker_id] = answer.broker_epoch
        return answer

    def heartbeat(self, broker_id: int, **changed: Any) -> BrokerHeartbeatResponse:
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": self.epochs.get(broker_id, -1),
            "current_metadata_offset": len(self.log) - 1,
            **changed,
        }
        answer: BrokerHeartbeatResponse = self.ask(BrokerHeartbeatRequest(**values))
        return answer

    def add_brokers(self, *broker_ids: int, **changed: Any) -> None:
        for broker_id in broker_ids:
            assert self.register(broker_id, **changed).error_code is ErrorCode.NONE
            assert not self.heartbeat(broker_id).is_fenced

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
        return list(self.ask(CreateTopicsRequest(topics, validate_only=validate_only)).topics)

    def create_assigned(self, name: str, *assignments: Sequence[int], **configs: str) -> bytes:
        (result,) = self.create(assigned(name, *assignments, **configs))
        assert result.error_code is ErrorCode.NONE, result
        return result.topic_id

    def records(self, start: int = 0) -> list[MetadataRecord]:
        return [decode(record) for record in self.log[start:]]

    def run_clock(self, ms: int) -> list[MetadataRecord]:
        """Move the clock in steps of at most 10 ms, and run what is due."""
        start, end_ms = len(self.log), self.now_ms + ms
        while self.now_ms < end_ms:
            due_ms = self.controller.deadline_ms or end_ms
            self.now_ms = min(self.now_ms + 10, end_ms, max(due_ms, self.now_ms + 1))
            self.take_turns()
        return self.records(start)

    def pass_silently(self, ms: int) -> None:
        """Move the clock without other replicas, so that no NoOp records are written."""
        self.is_followed = False
        self.run_clock(ms)
        self.is_followed = True


def registration(broker_id: int, incarnation: int = 1, **changed: Any) -> BrokerRegistrationRequest:
    features = tuple(
        SupportedFeature(name, levels.min_version, levels.max_version) for name, levels in SUPPORTED_FEATURES.items()
    )
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": uuid(1_000 + incarnation),
        "listeners": (Listener("PLAINTEXT", f"host{broker_id}", 9092),),
        "features": features,
        "log_dirs": (uuid(100 + broker_id),),
        **changed,
    }
    return BrokerRegistrationRequest(**values)


def assigned(name: str, *assignments: Sequence[int], **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name,
        assignments=tuple(CreatableReplicaAssignment(at, tuple(brokers)) for at, brokers in enumerate(assignments)),
        configs=topic_configs(**configs),
    )


def topic_configs(**configs: str | None) -> tuple[CreatableTopicConfig, ...]:
    """Underscores replace dots in names."""
    return tuple(CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items())
