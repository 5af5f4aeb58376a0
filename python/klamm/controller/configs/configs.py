"""Config changes: how each operation changes the stored values, and its records (`ConfigurationControlManager`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm._engine.config import parse_config
from klamm.config.broker_checks import changed_list
from klamm.config.keys import SCOPES, keys
from klamm.config.values import NodeLayers, effective_topic_value
from klamm.controller.activation import MIN_INSYNC_REPLICAS, min_insync_replicas_record
from klamm.controller.configs.config_checks import check_configs
from klamm.controller.result import Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.features import CORDONED_LOG_DIRS_LEVEL
from klamm.protocol.generated.metadata_records import ClearElrRecord, ConfigRecord
from klamm.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.resource_types import ResourceType
from klamm.protocol.value import Value

VALUE_LENGTH_MAX: Final = 32_767
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"

_RESOURCE_TYPES: Final = frozenset(map(int, ResourceType))

Changes = Mapping[str, str | None]
"""The new value of each key that is touched; None deletes it."""

AlterConfigPolicy = Callable[[ResourceType, str, Changes], None]
"""Refuses a change by raising KafkaError, POLICY_VIOLATION as a rule."""


class ConfigSettings(Value):
    """The configuration of the controller's own node: its id, its file, and an optional policy."""

    node_id: int
    static: Mapping[str, str]
    policy: AlterConfigPolicy | None = None


class ConfigManager:
    """Validates changes of configs and writes their records."""

    def __init__(self, settings: ConfigSettings, voters: Callable[[], frozenset[int]]) -> None:
        """`voters` returns the current ids of the quorum, whose nodes can be configured before they register."""
        self._settings: Final = settings
        self._voters: Final = voters
        self._layers = NodeLayers()
        self._layers_of: tuple[Speculation, int] | None = None

    def layers(self, state: Speculation) -> NodeLayers:
        """The configs of the controller's own node, which provide a topic's defaults.

        The same object is returned while nothing of it changes.
        """
        if self._layers_of != (state, state.node_configs_version):
            cluster = state.configs(ResourceType.BROKER, "")
            node = state.configs(ResourceType.BROKER, str(self._settings.node_id))
            self._layers = NodeLayers(self._settings.static, cluster, node)
            self._layers_of = (state, state.node_configs_version)
        return self._layers

    def is_unclean_election_allowed(self, state: Speculation, topic: str) -> bool:
        """Whether the topic prefers a replica that lost records to no leader."""
        configs = state.configs(ResourceType.TOPIC, topic)
        value, _ = effective_topic_value(UNCLEAN_LEADER_ELECTION, self.layers(state), configs)
        return parse_config("topic", UNCLEAN_LEADER_ELECTION, value or "") is True

    def alter_incrementally(
        self, state: Speculation, request: IncrementalAlterConfigsRequest
    ) -> Result[tuple[AlterConfigsResourceResponse, ...]]:
        """Set, delete, append to and subtract from single keys (KIP-339)."""
        return self._alter(state, request.resources, request.validate_only, self._incremental_changes)

    def alter_legacy(
        self, state: Speculation, request: AlterConfigsRequest
    ) -> Result[tuple[AlterConfigsResourceResponse, ...]]:
        """Replace all configs of each resource."""
        return self._alter(state, request.resources, request.validate_only, self._legacy_changes)

    def _alter(
        self,
        state: Speculation,
        resources: Sequence[AlterConfigsResource],
        validate_only: bool,
        changes_of: Callable[[AlterConfigsResource, dict[str, str]], tuple[Changes, Changes]],
    ) -> Result[tuple[AlterConfigsResourceResponse, ...]]:
        places = [(each.resource_type, each.resource_name) for each in resources]
        counts = Counter(places)
        answers: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
        records: list[bytes] = []
        for place, resource in zip(places, resources, strict=True):
            try:
                _check_place(place, counts[place])
                existing = state.configs(ResourceType(place[0]), place[1])
                records += self._resource_records(state, place, existing, *changes_of(resource, existing))
                answers[place] = AlterConfigsResourceResponse(*place)
            except KafkaError as error:
                answers[place] = AlterConfigsResourceResponse(*place, error.code, error.message)
        check_record_count(records)
        return Result(tuple(answers.values()), () if validate_only else records)

    def _incremental_changes(self, resource: AlterConfigsResource, existing: dict[str, str]) -> tuple[Changes, Changes]:
        changed = {config.name: _changed(resource.resource_type, config, existing) for config in resource.configs}
        return _that_differ(resource.resource_type, existing, changed), {}

    def _legacy_changes(self, resource: AlterConfigsResource, existing: dict[str, str]) -> tuple[Changes, Changes]:
        given = {config.name: config.value for config in resource.configs}
        implied: Changes = {name: None for name in existing if name not in given}
        return _that_differ(resource.resource_type, existing, given), implied

    def _resource_records(
        self,
        state: Speculation,
        place: tuple[int, str],
        existing: Mapping[str, str],
        explicit: Changes,
        implied: Changes,
    ) -> list[bytes]:
        changes = {**explicit, **implied}
        self._check_changes(state, place, existing, changes)
        after = {name: value for name, value in {**existing, **changes}.items() if value is not None}
        check_configs(self.layers(state), place, after, existing)
        self._check_exists(state, place)
        if self._settings.policy is not None:
            # What legacy AlterConfigs deletes by not naming it is not shown to the policy (KAFKA-14195).
            self._settings.policy(ResourceType(place[0]), place[1], explicit)
        return self.records(state, place, changes)

    def creation_records(self, state: Speculation, topic: str, configs: Mapping[str, str]) -> list[bytes]:
        """The records of a new topic's configs. Raises INVALID_CONFIG, or the error of the policy."""
        if not configs:
            return []
        place = (int(ResourceType.TOPIC), topic)
        self._check_changes(state, place, {}, configs)
        check_configs(self.layers(state), place, configs, {})
        if self._settings.policy is not None:
            self._settings.policy(ResourceType.TOPIC, topic, configs)
        return self.records(state, place, configs)

    def records(self, state: Speculation, place: tuple[int, str], changes: Changes) -> list[bytes]:
        """The records of checked changes; a new min.insync.replicas also clears eligible replicas of the old one."""
        resource_type, name = place
        records = [
            state.encode(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value))
            for key, value in changes.items()
        ]
        if MIN_INSYNC_REPLICAS in changes and state.image.is_elr_enabled:
            topic = name if resource_type == ResourceType.TOPIC else ""
            records.append(state.encode(ClearElrRecord(topic_name=topic)))
        return records

    def _check_changes(
        self, state: Speculation, place: tuple[int, str], existing: Mapping[str, str], changes: Changes
    ) -> None:
        for key, value in changes.items():
            if place[0] == ResourceType.BROKER:
                _check_node_key(state, place[1], key, value)
            if value is not None and len(value) > VALUE_LENGTH_MAX:
                text = f"The value of {key} has {len(value)} characters; at most {VALUE_LENGTH_MAX} are stored."
                raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    def _check_exists(self, state: Speculation, place: tuple[int, str]) -> None:
        resource_type, name = place
        if resource_type == ResourceType.TOPIC and state.image.topic_id(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if resource_type == ResourceType.BROKER and name:
            node_id = int(name)
            known = state.image.broker(node_id) or state.image.controller(node_id)
            if known is None and node_id not in self._voters():
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")

    def elr_safety_records(self, state: Speculation) -> list[bytes]:
        """The record that makes eligible leader replicas safe to enable: the cluster's min.insync.replicas."""
        changes: list[ConfigRecord] = []
        if MIN_INSYNC_REPLICAS not in state.configs(ResourceType.BROKER, ""):
            value = self._settings.static.get(MIN_INSYNC_REPLICAS, keys("node")[MIN_INSYNC_REPLICAS].default)
            changes.append(min_insync_replicas_record("", value))
        for node in state.image.config_resources(ResourceType.BROKER):
            if node and MIN_INSYNC_REPLICAS in state.configs(ResourceType.BROKER, node):
                changes.append(min_insync_replicas_record(node, None))
        return [state.encode(record) for record in changes]


def _check_place(place: tuple[int, str], count: int) -> None:
    resource_type, _ = place
    if resource_type not in _RESOURCE_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource_type}.")
    if resource_type not in SCOPES:
        name = ResourceType(resource_type).name
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {name}.")
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")


def _changed(resource_type: int, config: AlterableConfig, existing: Mapping[str, str]) -> str | None:
    current = existing.get(config.name)
    match config.config_operation:
        case ConfigOperation.SET:
            return config.value
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            return _changed_list(resource_type, config, current)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {other} on {config.name}")


def _changed_list(resource_type: int, config: AlterableConfig, current: str | None) -> str:
    key = keys(SCOPES[resource_type]).get(config.name)
    operation = ConfigOperation(config.config_operation)
    if key is None or key.type != "LIST":
        text = f"{operation.name} needs a list, which {config.name} is not."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    return changed_list(operation, key.default if current is None else current, config.value or "")


def _that_differ(resource_type: int, existing: Mapping[str, str], changed: Changes) -> Changes:
    # A node's value is written even if it is unchanged: the node then reads its key files again (KAFKA-14136).
    if resource_type == ResourceType.BROKER:
        return changed
    return {name: value for name, value in changed.items() if existing.get(name) != value}


def _check_node_key(state: Speculation, node: str, key: str, value: str | None) -> None:
    if key == MIN_INSYNC_REPLICAS and state.image.is_elr_enabled:
        if node:
            text = f"With eligible leader replicas {key} is set for the cluster or a topic, not for one broker."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        if value is None:
            text = f"Eligible leader replicas need {key} for the cluster: change it, but do not delete it."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    if key == CORDONED_LOG_DIRS and state.metadata_version < CORDONED_LOG_DIRS_LEVEL:
        text = f"{key} cannot be set: it needs metadata.version {CORDONED_LOG_DIRS_LEVEL} (4.3-IV0)."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
