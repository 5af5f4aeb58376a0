"""A controller over the engine's own image, with a log in memory: what it returns is appended and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar, cast

from klamm._engine import Image
from klamm.controller.controller import Controller
from klamm.controller.operations import MODULES, operations_in
from klamm.controller.result import Result
from klamm.controller.settings import ControllerSettings
from klamm.protocol.errors import ErrorCode, KafkaError
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

T = TypeVar("T")

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LATEST = {"metadata.version": 30}
WITH_ELR = {"metadata.version": 30, "eligible.leader.replicas.version": 1}


def uuid(number: int) -> bytes:
    """An id that is not reserved."""
    return number.to_bytes(8, "big") + bytes(7) + b"\x01"


def bootstrap(features: dict[str, int]) -> list[bytes]:
    return [encode(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()]


OPERATIONS = {f"on_{key.name.lower()}": one for module in MODULES for key, one in operations_in(module).items()}


class Answering:
    """A controller that answers what refuses a request as a whole, as `Operation.decided` does."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._controller = Controller(settings)

    def __getattr__(self, name: str) -> Any:
        found, operation = getattr(self._controller, name), OPERATIONS.get(name)
        if operation is None:
            return found

        def decided(*arguments: Any, **options: Any) -> Result[Any]:
            try:
                return found(*arguments, **options)  # type: ignore[no-any-return]
            except KafkaError as error:
                [request] = [one for one in arguments if isinstance(one, operation.request)]
                return Result(operation.refuse(request, error.code, error.message))

        return decided


def answering(settings: ControllerSettings) -> Controller:
    """One of `Answering`, typed as what it stands for."""
    return cast(Controller, Answering(settings))


class Cluster:
    """One active controller, its log, and a clock that a test moves."""

    def __init__(self, features: dict[str, int] | None = None, **settings: Any) -> None:
        self.settings = ControllerSettings(
            node_id=settings.pop("node_id", 0),
            cluster_id=CLUSTER_ID,
            **settings,
        )
        self.controller = answering(self.settings)
        self.log: list[bytes] = []
        self.image = Image()
        self.now_ms = 1_000_000
        self.is_followed = True
        self.incarnations: Iterator[int] = count(1)
        self.epochs: dict[int, int] = {}
        self.between_parts: Callable[[], object] = lambda: None
        self.activate(LATEST if features is None else features)

    def activate(self, features: dict[str, int]) -> Result[None]:
        result = self.controller.activate(self.now_ms, self.image, len(self.log), bootstrap(features), 0)
        self.commit(result)
        return result

    def fail_over(self) -> None:
        """The same log under a controller that knows nothing but it."""
        self.controller = answering(self.settings)
        self.activate({})

    def commit(self, result: Result[T]) -> T:
        self.append(result)
        while result.rest is not None:
            self.between_parts()
            result = result.rest()
            self.append(result)
        return result.answer

    def append(self, result: Result[Any]) -> None:
        if result.records:
            self.controller.replay(result.records, len(self.log))
            self.log += result.records
            self.image = self.image.apply(result.records)

    def register(self, broker_id: int, **changed: Any) -> BrokerRegistrationResponse:
        api_version = changed.pop("api_version", 4)
        request = registration(broker_id, incarnation=next(self.incarnations), **changed)
        answer = self.commit(self.controller.on_broker_registration(self.now_ms, request, api_version))
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
        return self.commit(self.controller.on_broker_heartbeat(self.now_ms, BrokerHeartbeatRequest(**values)))

    def add_brokers(self, *broker_ids: int, **changed: Any) -> None:
        for broker_id in broker_ids:
            assert self.register(broker_id, **changed).error_code is ErrorCode.NONE
            assert not self.heartbeat(broker_id).is_fenced

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics, validate_only=validate_only)
        random_bytes = bytes(at * 37 % 251 for at in range(len(self.log), len(self.log) + 24 * len(topics)))
        return list(self.commit(self.controller.on_create_topics(request, random_bytes)).topics)

    def create_assigned(self, name: str, *assignments: Sequence[int], **configs: str) -> bytes:
        (result,) = self.create(assigned(name, *assignments, **configs))
        assert result.error_code is ErrorCode.NONE, result
        return result.topic_id

    def records(self, start: int = 0) -> list[MetadataRecord]:
        return [decode(record) for record in self.log[start:]]

    def run_clock(self, ms: int) -> list[MetadataRecord]:
        """Move the clock in steps of 10 ms at most, doing what is due when it is due."""
        start, end_ms = len(self.log), self.now_ms + ms
        while self.now_ms < end_ms:
            due_ms = self.controller.deadline_ms or end_ms
            self.now_ms = min(self.now_ms + 10, end_ms, max(due_ms, self.now_ms + 1))
            while (result := self.controller.on_deadline(self.now_ms, is_followed=self.is_followed)) is not None:
                self.commit(result)
        return self.records(start)

    def pass_silently(self, ms: int) -> None:
        """Move the clock as well; no other replica is there for which records would be written."""
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
    """Underscores stand for dots."""
    return tuple(CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items())
