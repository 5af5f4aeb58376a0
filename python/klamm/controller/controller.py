"""The active controller: requests and the clock in, records and responses out (`QuorumController`).

A driver calls `on_<request>`, appends the records of the result to the metadata log, gives them back to `replay`, and
answers when they are committed. Nothing here waits, and only `replay` changes the image that requests are held against.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from klamm._engine import Image
from klamm.controller.activation import activation_records
from klamm.controller.leadership.elections import BrokerEvent, ElectionManager
from klamm.controller.leadership.moves import Moves, in_parts
from klamm.controller.nodes.brokers import BrokerManager
from klamm.controller.periodic import PeriodicSchedule, PeriodicTask, stale_look_ms
from klamm.controller.result import Result
from klamm.controller.settings import ControllerSettings
from klamm.controller.speculation import Speculation
from klamm.driving.running_time import RunningTime
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    NOOP_RECORD_LEVEL,
    VersionRange,
)
from klamm.protocol.generated.metadata_records import FeatureLevelRecord, NoOpRecord

if TYPE_CHECKING:
    from klamm.controller.configs.configs import ConfigManager
    from klamm.controller.features import Supporters
    from klamm.controller.topics.topics import TopicManager
    from klamm.protocol.messages.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from klamm.protocol.messages.feature_updates import UpdateFeaturesRequest, UpdateFeaturesResponse
    from klamm.protocol.messages.registration import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )
    from klamm.protocol.messages.topics import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        ElectLeadersRequest,
        ElectLeadersResponse,
    )

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_BROKER: Final = -1


class Controller:
    """The managers, the state they share while this node is the active controller, and its clock.

    What no start needs is imported by the first request that does.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings: Final = settings
        self._elections: Final = ElectionManager(settings.elections())
        self._brokers: Final = BrokerManager(settings.brokers(), self._elections)
        periodic = settings.periodic()
        self._schedule: Final = PeriodicSchedule(periodic)
        self._stale_look_ms: Final = stale_look_ms(periodic)
        self._running_time = RunningTime(0, self._stale_look_ms)
        self._has_waited_for_heartbeats = False
        self._state: Speculation | None = None
        self._kraft_version = 0
        self._voters: frozenset[int] = frozenset()
        self._kraft_refusal: str | None = None

    @cached_property
    def _configs(self) -> ConfigManager:
        from klamm.controller.configs.configs import ConfigManager

        return ConfigManager(self._settings.configs(), lambda: self._voters)

    @cached_property
    def _topics(self) -> TopicManager:
        from klamm.controller.topics.topics import TopicManager

        return TopicManager(self._settings.topics(), self._configs)

    @property
    def is_active(self) -> bool:
        """Whether this node answers as the controller."""
        return self._state is not None

    @property
    def deadline_ms(self) -> int | None:
        """When `on_deadline` is next to be called."""
        return self._schedule.deadline_ms

    def activate(
        self, now_ms: int, image: Image, next_offset: int, bootstrap: Sequence[bytes], kraft_version: int
    ) -> Result[None]:
        """Begin, with all that the log holds in `image`; its end is `next_offset`. The records go first of all."""
        assert self._state is None, "activated twice"
        result = activation_records(image, bootstrap, self._settings.min_insync_replicas)
        self._state = Speculation(image, next_offset)
        self._kraft_version = kraft_version
        self._running_time = RunningTime(now_ms, self._stale_look_ms)
        self._brokers.activate(self._state, now_ms)
        self._schedule.start(now_ms)
        log.info("Active controller from offset %d on; %d records to begin with", next_offset, len(result.records))
        if image.leaderless_partition_count == 0:
            return result
        # A controller before may have ended while it elected leaders for a broker that came back.
        moves = Moves(self._elections, self._state, BrokerEvent.UNFENCED, NO_BROKER)
        return result._replace(rest=lambda: in_parts(moves, (), None, lambda _: Result(None)))

    def _turn(self, now_ms: int) -> int:
        """Begin a turn; returns the time by which sessions are counted."""
        return self._running_time.on_turn(now_ms, self._schedule.deadline_ms)

    def deactivate(self) -> None:
        """Another leads: drop all that was not committed."""
        self._state = None
        self._schedule.stop()

    def on_quorum(self, voters: frozenset[int], kraft_refusal: str | None) -> None:
        """Who votes in the quorum, and why it cannot go to the next kraft.version, if it cannot.

        Set before each request that depends on it: configs and features.
        """
        self._voters, self._kraft_refusal = voters, kraft_refusal

    def on_kraft_version(self, level: int) -> None:
        """The quorum has written that level to the log."""
        self._kraft_version = level

    def replay(self, records: Sequence[bytes], first_offset: int) -> None:
        """Records of a result, now in the log from `first_offset` on."""
        assert self._state is not None, "only an active controller appends"
        self._state.replay(records, first_offset)

    def _active(self) -> Speculation:
        if self._state is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {self._settings.node_id} is not the active controller.")
        return self._state

    # Operations (`klamm.controller.operations`). A KafkaError that they raise refuses the request as a whole.
    # Topics

    def on_create_topics(self, request: CreateTopicsRequest, random_bytes: bytes) -> Result[CreateTopicsResponse]:
        """CreateTopics; `random_bytes` are `topics.RANDOM_BYTES_PER_TOPIC` random bytes a topic."""
        return self._topics.create(self._active(), request, random_bytes)

    def on_delete_topics(self, request: DeleteTopicsRequest, api_version: int) -> Result[DeleteTopicsResponse]:
        """DeleteTopics."""
        from klamm.controller.topics.deletions import check_deletion_enabled, delete_topics

        state = self._active()
        check_deletion_enabled(self._settings.delete_topic_enable, api_version)
        return delete_topics(state, request)

    def on_create_partitions(self, request: CreatePartitionsRequest, seed: int) -> Result[CreatePartitionsResponse]:
        """CreatePartitions; `seed` is a random 64-bit number."""
        from klamm.controller.topics.partitions import create_partitions

        return create_partitions(self._active(), request, seed)

    def on_elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        """ElectLeaders."""
        from klamm.controller.leadership.election_requests import elect_leaders

        return elect_leaders(self._elections, self._active(), request)

    # Configs and features

    def on_incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        """IncrementalAlterConfigs."""
        from klamm.protocol.messages.configs import IncrementalAlterConfigsResponse

        result = self._configs.alter_incrementally(self._active(), request)
        return Result(IncrementalAlterConfigsResponse(result.answer), result.records)

    def on_alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        """AlterConfigs."""
        from klamm.protocol.messages.configs import AlterConfigsResponse

        result = self._configs.alter_legacy(self._active(), request)
        return Result(AlterConfigsResponse(result.answer), result.records)

    def on_update_features(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        """UpdateFeatures."""
        return self._update_features(self._active(), request)

    def _update_features(self, state: Speculation, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        from klamm.controller.features import changed_levels
        from klamm.protocol.messages.feature_updates import UpdatableFeatureResult, UpdateFeaturesResponse

        finalized = {**state.image.features(), KRAFT_VERSION: self._kraft_version}
        try:
            changes = changed_levels(request.feature_updates, finalized, self._supporters(state))
        except KafkaError as error:
            text = f"No feature was changed: {error.message}"
            raise KafkaError(error.code, text) from error
        results = tuple(UpdatableFeatureResult(update.feature) for update in request.feature_updates)
        answer = UpdateFeaturesResponse(results=results)
        if request.validate_only:
            return Result(answer)
        records: list[bytes] = []
        if changes.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
            records += self._configs.elr_safety_records(state)
        kraft_version = changes.pop(KRAFT_VERSION, None)
        levels = (FeatureLevelRecord(name=name, feature_level=level) for name, level in changes.items())
        records += map(state.encode, levels)
        if kraft_version is not None:
            # Something of ours to wait for: the level itself stands in the quorum's control records.
            records.append(state.encode(NoOpRecord()))
        return Result(answer, records, kraft_version=kraft_version)

    def _supporters(self, state: Speculation) -> Supporters:
        from klamm.controller.features import Supporters

        image = state.image
        brokers = {each: image.broker(each) for each in image.broker_ids()}
        controllers = {each: image.controller(each) for each in image.controller_ids()}
        return Supporters(
            self._settings.node_id,
            self._settings.features,
            {each: _ranges(node.features) for each, node in brokers.items() if node is not None},
            {each: _ranges(node.features) for each, node in controllers.items() if node is not None},
            self._voters,
            self._kraft_refusal,
        )

    # Brokers

    def on_broker_registration(
        self, now_ms: int, request: BrokerRegistrationRequest, api_version: int
    ) -> Result[BrokerRegistrationResponse]:
        """BrokerRegistration."""
        running_ms = self._turn(now_ms)
        return self._brokers.register(
            self._active(), running_ms, request, kraft_version=self._kraft_version, api_version=api_version
        )

    def on_broker_heartbeat(self, now_ms: int, request: BrokerHeartbeatRequest) -> Result[BrokerHeartbeatResponse]:
        """BrokerHeartbeat."""
        running_ms = self._turn(now_ms)
        return self._brokers.heartbeat(self._active(), running_ms, request)

    def on_assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> Result[AssignReplicasToDirsResponse]:
        """AssignReplicasToDirs."""
        return self._brokers.assign_directories(self._active(), request)

    def on_unregister_broker(self, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        """UnregisterBroker."""
        return self._brokers.unregister(self._active(), request)

    def on_controller_registration(
        self, request: ControllerRegistrationRequest
    ) -> Result[ControllerRegistrationResponse]:
        """ControllerRegistration."""
        from klamm.controller.nodes.controllers import register_controller

        return register_controller(self._active(), request)

    def on_allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result[AllocateProducerIdsResponse]:
        """AllocateProducerIds."""
        from klamm.controller.nodes.producer_ids import allocate

        return allocate(self._active(), request)

    # By the clock

    def on_deadline(self, now_ms: int, *, is_followed: bool) -> Result[None] | None:
        """Do one task that is due; None when there is none. To be called until then.

        `is_followed`: another replica fetches the metadata log.
        """
        running_ms = self._turn(now_ms)
        task = self._schedule.pop_due(now_ms)
        if task is None or self._state is None:
            return None
        if task is PeriodicTask.WRITE_NO_OP_RECORD and not is_followed:
            # They show other replicas that the log moves (KIP-835); a log without any needs none, and no flush for it.
            self._schedule.put_off(task, now_ms)
            return Result(None)
        return self._done(task, self._run(task, self._state, running_ms), now_ms)

    def _done(self, task: PeriodicTask, result: Result[bool], now_ms: int) -> Result[None]:
        rest = result.rest
        if rest is not None:
            return Result(
                None,
                result.records,
                result.is_atomic,
                rest=lambda: self._done(task, rest(), now_ms),
                broker_id=result.broker_id,
            )
        if result.answer:
            self._schedule.again(task, now_ms)
        return Result(None, result.records, result.is_atomic)

    def _run(self, task: PeriodicTask, state: Speculation, running_ms: int) -> Result[bool]:
        """The task's records, and whether it has more to do at once."""
        match task:
            case PeriodicTask.WRITE_NO_OP_RECORD:
                is_known = state.metadata_version >= NOOP_RECORD_LEVEL
                return Result(False, [state.encode(NoOpRecord())] if is_known else ())
            case PeriodicTask.MAYBE_FENCE_STALE_BROKER:
                return Result(False) if self._waits_for_heartbeats() else self._brokers.fence_stale(state, running_ms)
            case PeriodicTask.ELECT_PREFERRED:
                return self._elections.elect_preferred(state)
            case PeriodicTask.ELECT_UNCLEAN:
                return self._elections.elect_unclean(state)

    def _waits_for_heartbeats(self) -> bool:
        """Whether heartbeats may lie unread since a pause. They get the time until the next look, once.

        A controller that is late at every look must not put off the fencing of a dead broker for ever.
        """
        pause_ms = self._running_time.take_pause()
        if pause_ms:
            log.warning("The controller did not run for %d ms; broker sessions are extended by that", pause_ms)
        self._has_waited_for_heartbeats = bool(pause_ms) and not self._has_waited_for_heartbeats
        return self._has_waited_for_heartbeats


def _ranges(features: Sequence[Any]) -> dict[str, VersionRange]:
    return {feature.name: VersionRange(feature.level_min, feature.level_max) for feature in features}
