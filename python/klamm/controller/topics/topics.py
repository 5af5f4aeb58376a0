"""Creating topics (`ReplicationControlManager.createTopics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from klamm._engine.controller import topic_records
from klamm.config.values import NodeLayers
from klamm.controller.configs.configs import ConfigManager
from klamm.controller.configs.effective_configs import DefaultEntries
from klamm.controller.mutation_quotas import Charge
from klamm.controller.result import MAX_RECORDS_PER_BATCH, Result, check_record_count
from klamm.controller.speculation import Speculation
from klamm.controller.topics.placement import check_assignment, place
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.topics import (
    UNSET,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from klamm.protocol.topic_names import CLUSTER_METADATA_TOPIC, check_topic_name
from klamm.protocol.value import Value

RANDOM_BYTES_PER_TOPIC: Final = 24
"""Random bytes that creating a topic needs."""


class NewTopic(Value):
    """The topic in the form that a policy gets: counts, or the assignment by partition, and the configs to set."""

    name: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


CreateTopicPolicy = Callable[[NewTopic], None]
"""Refuses a topic by raising KafkaError, POLICY_VIOLATION as a rule."""


class TopicSettings(Value):
    """The keys of the controller's node that determine creation."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    policy: CreateTopicPolicy | None = None


class TopicManager:
    """Creates topics."""

    def __init__(self, settings: TopicSettings, configs: ConfigManager) -> None:
        self._settings: Final = settings
        self._configs: Final = configs
        self._defaults = DefaultEntries(NodeLayers())

    def create(
        self, state: Speculation, request: CreateTopicsRequest, random_bytes: bytes, charge: Charge
    ) -> Result[CreateTopicsResponse]:
        """Create all topics of the request that are valid, in one batch.

        `random_bytes` are 24 a topic: 16 for its id, 8 for its placement. Raises POLICY_VIOLATION for a request that is
        too large as a whole.
        """
        self._check_partition_total(request.topics)
        assert len(random_bytes) >= RANDOM_BYTES_PER_TOPIC * len(request.topics), (
            f"{len(random_bytes)} bytes for {len(request.topics)} topics"
        )
        layers = self._configs.layers(state)
        if self._defaults.layers is not layers:
            self._defaults = DefaultEntries(layers)
        seen, repeated = set[str](), set[str]()
        for topic in request.topics:
            (repeated if topic.name in seen else seen).add(topic.name)
        results: dict[str, CreatableTopicResult] = {}
        records: list[bytes] = []
        for topic, start in zip(request.topics, range(0, len(random_bytes), RANDOM_BYTES_PER_TOPIC), strict=False):
            try:
                _check_allowed(topic.name, is_repeated=topic.name in repeated)
                results[topic.name] = self._create_one(
                    state, topic, random_bytes[start : start + RANDOM_BYTES_PER_TOPIC], records, charge
                )
            except KafkaError as error:
                results[topic.name] = _refused(topic.name, error)
        check_record_count(records)
        answer = CreateTopicsResponse(tuple(results.values()))
        return Result(answer, () if request.validate_only else records)

    def _create_one(
        self, state: Speculation, topic: CreatableTopic, random_bytes: bytes, records: list[bytes], charge: Charge
    ) -> CreatableTopicResult:
        self._check_new_name(state, topic.name)
        configs = _configs_of(topic)
        config_records = self._configs.creation_records(state, topic.name, configs)
        if topic.assignments:
            assignments: Sequence[Sequence[int]] = _checked_assignments(state, topic)
            by_partition = {index: tuple(brokers) for index, brokers in enumerate(assignments)}
            self._ask_policy(lambda: NewTopic(topic.name, None, None, by_partition, configs))
        else:
            assignments = self._placed(state, topic, configs, int.from_bytes(random_bytes[16:24], "big"))
        charge(len(assignments))
        topic_id = new_topic_id(random_bytes[:16])
        topic_record, *partition_records = topic_records(state.image, topic.name, topic_id, (), assignments)
        records += (topic_record, *config_records, *partition_records)
        return CreatableTopicResult(
            topic.name,
            topic_id,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=self._defaults.with_topic(configs),
        )

    def _placed(
        self, state: Speculation, topic: CreatableTopic, configs: Mapping[str, str], seed: int
    ) -> Sequence[Sequence[int]]:
        if topic.replication_factor < UNSET or topic.replication_factor == 0:
            text = "The replication factor must be 1 or more, or -1 for the cluster's default."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if topic.num_partitions < UNSET or topic.num_partitions == 0:
            text = "The number of partitions must be 1 or more, or -1 for the cluster's default."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
        count, factor = self._count_of(topic), topic.replication_factor
        factor = self._settings.default_replication_factor if factor == UNSET else factor
        assignments = place(state, count, factor, seed)
        self._ask_policy(lambda: NewTopic(topic.name, count, factor, None, configs))
        return assignments

    def _check_partition_total(self, topics: Iterable[CreatableTopic]) -> None:
        total = sum(len(topic.assignments) or self._count_of(topic) for topic in topics)
        if total > MAX_RECORDS_PER_BATCH:
            text = f"The request asks for {total} partitions; at most {MAX_RECORDS_PER_BATCH} can be created at once."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def _count_of(self, topic: CreatableTopic) -> int:
        return self._settings.num_partitions if topic.num_partitions == UNSET else max(topic.num_partitions, 0)

    def _check_new_name(self, state: Speculation, name: str) -> None:
        check_topic_name(name)
        if state.image.topic_id(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = state.names.colliding(name)
        if other is not None:
            text = (
                f"Topic '{name}' collides in metric names with topic '{other}', which exists: '.' and '_' count as one."
            )
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)

    def _ask_policy(self, topic: Callable[[], NewTopic]) -> None:
        if self._settings.policy is not None:
            self._settings.policy(topic())


def _check_allowed(name: str, *, is_repeated: bool) -> None:
    if is_repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if name == CLUSTER_METADATA_TOPIC:
        text = f"{CLUSTER_METADATA_TOPIC} is the cluster's own log and not for clients to create."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _configs_of(topic: CreatableTopic) -> dict[str, str]:
    if not topic.configs:
        return {}
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        text = f"These topic configs have no value: {', '.join(without_value)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _checked_assignments(state: Speculation, topic: CreatableTopic) -> Sequence[tuple[int, ...]]:
    """The brokers of each partition of a manual assignment, in order. Raises the error of an invalid one."""
    for what, value in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if value != UNSET:
            text = f"With a manual assignment {what} must be -1, not {value}."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    found: dict[int, tuple[int, ...]] = {}
    factor = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            text = f"Partition {index} is assigned more than once."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        check_assignment(state, index, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        found[index] = assignment.broker_ids
    if found.keys() != set(range(len(found))):
        text = "The assigned partitions must be numbered from 0 on without gaps."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return [found[index] for index in range(len(found))]


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=error.code, error_message=error.message)


def new_topic_id(random: bytes) -> bytes:
    """A random UUID (version 4) whose text does not begin with '-', which tools would parse as an option."""
    value = bytearray(random)
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    if value[0] >> 2 == _MINUS_SEXTET:
        value[0] ^= 0x80
    return bytes(value)


_MINUS_SEXTET: Final = 62
