"""The decisions of the active controller: an operation in, a `Result` out (`QuorumController`).

Nothing here waits, and only `replay` changes the image with which requests are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from klamm._engine.metadata import Image
from klamm.controller.activation import activation_records
from klamm.controller.leadership.elections import BrokerEvent, ElectionManager
from klamm.controller.leadership.moves import Moves, in_parts
from klamm.controller.nodes.brokers import BrokerManager
from klamm.controller.result import Result
from klamm.controller.settings import ControllerSettings
from klamm.controller.speculation import Speculation
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
    from klamm.controller.mutation_quotas import Charge, MutationQuota, MutationQuotas
    from klamm.controller.requester import Requester
    from klamm.controller.topics.topics import TopicManager
    from klamm.protocol.messages.client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from klamm.protocol.messages.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from klamm.protocol.messages.feature_updates import UpdateFeaturesRequest, UpdateFeaturesResponse
    from klamm.protocol.messages.partition_changes import AlterPartitionRequest, AlterPartitionResponse
    from klamm.protocol.messages.reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
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

NO_BROKER: Final = -1


class Decisions:
    """The managers, and the state they share while this node is the active controller.

    Modules that no start needs are imported by the first request that needs them.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings: Final = settings
        self._elections: Final = ElectionManager(settings.elections())
        self._brokers: Final = BrokerManager(settings.brokers(), self._elections)
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

    @cached_property
    def _mutation_quotas(self) -> MutationQuotas:
        from klamm.controller.mutation_quotas import MutationQuotas

        return MutationQuotas(self._settings.mutation_quota_saved_s)

    @property
    def is_active(self) -> bool:
        """Whether this node answers as the controller."""
        return self._state is not None

    def activate(
        self, now_ms: int, image: Image, next_offset: int, bootstrap: Sequence[bytes], kraft_version: int
    ) -> Result[None]:
        """This node became the active controller; `image` has the whole log. Returns the records to append first."""
        assert self._state is None, "activated twice"
        result = activation_records(image, bootstrap, self._settings.min_insync_replicas)
        self._state = Speculation(image, next_offset)
        self._kraft_version = kraft_version
        self._brokers.activate(self._state, now_ms)
        log.info("Active controller from offset %d on; %d records to begin with", next_offset, len(result.records))
        if image.leaderless_partition_count == 0:
            return result
        # A controller before may have ended while it elected leaders for a broker that came back.
        moves = Moves(self._elections, self._state, BrokerEvent.UNFENCED, NO_BROKER)
        return result._replace(rest=lambda: in_parts(moves, (), None, lambda _: Result(None)))

    def deactivate(self) -> None:
        """Another node leads: drop everything that is not committed."""
        self._state = None

    def set_quorum(self, voters: frozenset[int], kraft_refusal: str | None) -> None:
        """The voters of the quorum, and the reason why it cannot upgrade to the next kraft.version, if there is one."""
        self._voters, self._kraft_refusal = voters, kraft_refusal

    def set_kraft_version(self, level: int) -> None:
        """The quorum has written that level to the log."""
        self._kraft_version = level

    def applied(self, records: Sequence[bytes]) -> Image:
        """The image after the records of a result. Raises MetadataReplayError if they cannot be applied."""
        return self._active().image.apply(records)

    def replay(self, records: Sequence[bytes], first_offset: int, after: Image) -> None:
        """Records of a result, now in the log from `first_offset` on; `after` is the image with them."""
        assert self._state is not None, "only an active controller appends"
        self._state.replay(records, first_offset, after)

    def _active(self) -> Speculation:
        if self._state is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"Node {self._settings.node_id} is not the active controller.")
        return self._state

    # Operations (`klamm.controller.operations`). A KafkaError that they raise refuses the request as a whole.
    # Topics

    def mutation_quota(self, requester: Requester | None, now_ms: int, *, is_strict: bool) -> MutationQuota | None:
        """The quota that a request is charged to; None without a limit."""
        image = self._active().image
        if requester is None or not image.has_quotas:
            return None
        return self._mutation_quotas.of(image, requester, now_ms, is_strict=is_strict)

    def create_topics(
        self, request: CreateTopicsRequest, random_bytes: bytes, charge: Charge
    ) -> Result[CreateTopicsResponse]:
        """CreateTopics; `random_bytes` are `topics.RANDOM_BYTES_PER_TOPIC` random bytes a topic."""
        return self._topics.create(self._active(), request, random_bytes, charge)

    def delete_topics(
        self, request: DeleteTopicsRequest, api_version: int, charge: Charge
    ) -> Result[DeleteTopicsResponse]:
        """DeleteTopics."""
        from klamm.controller.topics import deletions

        state = self._active()
        deletions.check_deletion_enabled(self._settings.delete_topic_enable, api_version)
        return deletions.delete_topics(state, request, charge)

    def create_partitions(
        self, request: CreatePartitionsRequest, seed: int, charge: Charge
    ) -> Result[CreatePartitionsResponse]:
        """CreatePartitions; `seed` is a random 64-bit number."""
        from klamm.controller.topics import partitions

        return partitions.create_partitions(self._active(), request, seed, charge)

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        """ElectLeaders."""
        from klamm.controller.leadership import election_requests

        return election_requests.elect_leaders(self._elections, self._active(), request)

    # Replicas

    def alter_partition(self, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
        """AlterPartition."""
        from klamm.controller.leadership import isr_changes

        state = self._active()
        return isr_changes.alter_partition(self._elections.at(state), state, request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Result[AlterPartitionReassignmentsResponse]:
        """AlterPartitionReassignments."""
        from klamm.controller.topics import reassignments

        state = self._active()
        is_unclean_allowed = partial(self._configs.is_unclean_election_allowed, state)
        return reassignments.alter_reassignments(self._elections.at(state), state, request, is_unclean_allowed)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Result[ListPartitionReassignmentsResponse]:
        """ListPartitionReassignments."""
        from klamm.controller.topics import reassignments

        return reassignments.list_reassignments(self._active(), request)

    # Configs, quotas and features

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        """IncrementalAlterConfigs."""
        from klamm.protocol.messages.configs import IncrementalAlterConfigsResponse

        result = self._configs.alter_incrementally(self._active(), request)
        return Result(IncrementalAlterConfigsResponse(result.answer), result.records)

    def alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        """AlterConfigs."""
        from klamm.protocol.messages.configs import AlterConfigsResponse

        result = self._configs.alter_legacy(self._active(), request)
        return Result(AlterConfigsResponse(result.answer), result.records)

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, resolved_hosts: frozenset[str]
    ) -> Result[AlterClientQuotasResponse]:
        """AlterClientQuotas."""
        from klamm.controller.client_quotas import alter_client_quotas

        return alter_client_quotas(self._active(), request, resolved_hosts)

    def update_features(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
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
            # A record to wait for: the level itself is in the quorum's control records.
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

    def register_broker(
        self, running_ms: int, request: BrokerRegistrationRequest, api_version: int
    ) -> Result[BrokerRegistrationResponse]:
        """BrokerRegistration."""
        return self._brokers.register(
            self._active(), running_ms, request, kraft_version=self._kraft_version, api_version=api_version
        )

    def heartbeat(self, running_ms: int, request: BrokerHeartbeatRequest) -> Result[BrokerHeartbeatResponse]:
        """BrokerHeartbeat."""
        return self._brokers.heartbeat(self._active(), running_ms, request)

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> Result[AssignReplicasToDirsResponse]:
        """AssignReplicasToDirs."""
        return self._brokers.assign_directories(self._active(), request)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> Result[UnregisterBrokerResponse]:
        """UnregisterBroker."""
        return self._brokers.unregister(self._active(), request)

    def register_controller(self, request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
        """ControllerRegistration."""
        from klamm.controller.nodes.controllers import register_controller

        return register_controller(self._active(), request)

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Result[AllocateProducerIdsResponse]:
        """AllocateProducerIds."""
        from klamm.controller.nodes.producer_ids import allocate

        return allocate(self._active(), request)

    # Periodic tasks. The result says whether there may be more to do at once.

    def write_no_op_record(self) -> Result[bool]:
        """Show other replicas that the log moves (KIP-835)."""
        state = self._active()
        is_known = state.metadata_version >= NOOP_RECORD_LEVEL
        return Result(False, [state.encode(NoOpRecord())] if is_known else ())

    def end_broker_session(self, broker_id: int, epoch: int) -> bool:
        """The process of a broker has ended; false if it has no session in this epoch."""
        return self._brokers.end_session(broker_id, epoch)

    def fence_stale(self, running_ms: int) -> Result[bool]:
        """Fence a broker whose session has expired."""
        return self._brokers.fence_stale(self._active(), running_ms)

    def elect_preferred(self) -> Result[bool]:
        """Move leaderships back to preferred replicas."""
        return self._elections.elect_preferred(self._active())

    def elect_unclean(self) -> Result[bool]:
        """Elect leaders uncleanly where that is allowed."""
        return self._elections.elect_unclean(self._active())


def _ranges(features: Sequence[Any]) -> dict[str, VersionRange]:
    return {feature.name: VersionRange(feature.level_min, feature.level_max) for feature in features}
