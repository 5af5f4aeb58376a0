"""The targets of a restore: the plan for each topic, and its check against the cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from klamm.admin import configs as config_admin
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.client import BrokerError, KafkaClient
from klamm.pipelines.archive.archiving import ends
from klamm.pipelines.archive.cluster import describe
from klamm.pipelines.archive.manifest import Manifest, Range, Topic
from klamm.pipelines.archive.producing import Part, check_end
from klamm.pipelines.archive.state import State, Target
from klamm.pipelines.errors import PipelineError
from klamm.protocol.errors import ErrorCode

TIMESTAMP_TYPE: Final = "message.timestamp.type"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
RETENTION: Final = "retention.ms"
DAY_MS: Final = 86_400_000
DEFAULT_RETENTION_MS: Final = 7 * DAY_MS


@dataclass(frozen=True, slots=True)
class Cluster:
    """The target cluster."""

    admin: Client
    engine: KafkaClient


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """How topics are restored."""

    rename: Mapping[str, str] = field(default_factory=dict)
    into_existing: bool = False
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: int = -1


@dataclass(slots=True)
class TopicPlan:
    """The plan for a topic."""

    topic: str
    target: str
    partitions: int
    records: int
    written: int
    """Records that an earlier run restored."""
    creates: bool
    configs: dict[str, str]
    """The configs of the topic when it is created."""
    bases: dict[int, int]
    afterwards: dict[str, str]
    known: bool
    """Whether an earlier run started it."""
    notes: list[str] = field(default_factory=list)


def plan_topic(
    cluster: Cluster, manifest: Manifest, topic: Topic, state: State, settings: RestoreSettings
) -> TopicPlan:
    """Plan the restore of a topic. Changes nothing; raises PipelineError or ClientError if it is not possible."""
    target = settings.rename.get(topic.name, topic.name)
    configs = {**topic.configs, **settings.configs}
    afterwards: dict[str, str] = {}
    if configs.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME:
        configs[TIMESTAMP_TYPE] = CREATE_TIME
        afterwards[TIMESTAMP_TYPE] = LOG_APPEND_TIME
    plan = TopicPlan(
        topic.name, target, topic.partitions, manifest.records(topic.name), 0, True, configs, {}, afterwards, False
    )
    found = _find(cluster.admin, target)
    if found is None:
        _create(cluster.admin, plan, settings.replicas, validate_only=True)
        plan.bases = dict.fromkeys(range(topic.partitions), 0)
    else:
        there = describe(cluster.admin, found)
        _plan_existing(cluster, manifest, plan, there, state.get(target), into_existing=settings.into_existing)
    _note(manifest, plan)
    return plan


def _plan_existing(
    cluster: Cluster,
    manifest: Manifest,
    plan: TopicPlan,
    found: Topic,
    known: Target | None,
    *,
    into_existing: bool,
) -> None:
    plan.creates = False
    if found.partitions < plan.partitions:
        raise PipelineError(
            f"topic '{found.name}' has {found.partitions} partitions, and '{plan.topic}' had {plan.partitions}: "
            f"add them with `klamm topics alter`, or restore into another topic by --rename {plan.topic}=NAME"
        )
    earliest, latest = ends(cluster.engine, found)
    if known is not None and known.topic_id == found.topic_id:
        if known.topic != plan.topic:
            raise PipelineError(f"topic '{found.name}' was restored from '{known.topic}', not from '{plan.topic}'")
        plan.known = True
        plan.bases = {number: known.bases.get(number, latest[number]) for number in range(plan.partitions)}
        plan.afterwards = dict(known.afterwards)
        for part in parts(manifest, plan):
            check_end(part, latest[part.partition])
            plan.written += latest[part.partition] - part.base
        return
    filled = [number for number in latest if latest[number] > earliest[number]]
    if filled and not into_existing:
        raise PipelineError(
            f"topic '{found.name}' is not empty: partition {filled[0]} has offsets [{earliest[filled[0]]}, "
            f"{latest[filled[0]]}); restore into another by --rename {plan.topic}=NAME, or after its records by "
            "--into-existing"
        )
    plan.bases = {number: latest[number] for number in range(plan.partitions)}
    # The configs of the topic itself, not the archived ones; but a run that was killed after it created the topic
    # counts.
    was_intended = known is not None and known == intended(plan) and not filled
    plan.configs, plan.afterwards = {}, dict(known.afterwards) if known is not None and was_intended else {}
    if found.configs.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME:
        raise PipelineError(
            f"topic '{found.name}' has {TIMESTAMP_TYPE}={LOG_APPEND_TIME}, which would replace the records' "
            f"timestamps: `klamm configs set topic {found.name} {TIMESTAMP_TYPE}={CREATE_TIME}` first"
        )


def parts(manifest: Manifest, plan: TopicPlan) -> list[Part]:
    """The partitions of a topic that have records."""
    found: list[Part] = []
    for number in range(plan.partitions):
        ranges: Sequence[Range] = [one for one in manifest.ranges.get((plan.topic, number), ()) if one.records]
        if ranges:
            found.append(Part(plan.topic, plan.target, number, plan.bases[number], tuple(ranges), plan.known))
    return found


def intended(plan: TopicPlan) -> Target:
    """What to store about a topic before it is created."""
    return Target(plan.topic, None, plan.bases, plan.afterwards)


def begin(admin: Client, plan: TopicPlan, replicas: int) -> Target:
    """The topic, created if it is missing, with CreateTime timestamps; returns its state."""
    if plan.creates:
        _create(admin, plan, replicas, validate_only=False)
    elif plan.afterwards:
        config_admin.alter(admin, "topic", plan.target, {TIMESTAMP_TYPE: CREATE_TIME})
    found = _find(admin, plan.target)
    for _ in range(100):
        if found is not None:
            break
        time.sleep(0.1)
        found = _find(admin, plan.target)
    if found is None:
        raise PipelineError(f"topic '{plan.target}' was created, and the cluster does not show it: run the same again")
    return Target(plan.topic, found.topic_id, plan.bases, plan.afterwards)


def end(admin: Client, plan: TopicPlan) -> None:
    """The configs to set after everything is restored."""
    if plan.afterwards:
        config_admin.alter(admin, "topic", plan.target, plan.afterwards)


def _find(admin: Client, name: str) -> topic_admin.Topic | None:
    try:
        return topic_admin.topics(admin, [name])[0]
    except BrokerError as error:
        if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None


def _create(admin: Client, plan: TopicPlan, replicas: int, *, validate_only: bool) -> None:
    topic_admin.create(
        admin,
        [plan.target],
        partitions=plan.partitions,
        replication_factor=replicas,
        configs=plan.configs,
        validate_only=validate_only,
    )


def _note(manifest: Manifest, plan: TopicPlan) -> None:
    """Notes for the user before the restore."""
    ranges = [one for key, all_of in manifest.ranges.items() if key[0] == plan.topic for one in all_of]
    if lost := sum(one.end - one.start for one in ranges if one.lost):
        plan.notes.append(f"{plan.topic}: {lost} offsets were lost before they were archived")
    if plan.afterwards:
        plan.notes.append(
            f"{plan.topic}: {TIMESTAMP_TYPE} is {CREATE_TIME} until all is restored, so that timestamps stay; restored "
            "records keep CreateTime"
        )
    oldest = min((file.first_timestamp_ms for one in ranges for file in one.files), default=None)
    if plan.creates and oldest is not None:
        _note_retention(plan, oldest)


def _note_retention(plan: TopicPlan, oldest_ms: int) -> None:
    if "delete" not in plan.configs.get("cleanup.policy", "delete"):
        return
    given = plan.configs.get(RETENTION)
    retention_ms = DEFAULT_RETENTION_MS if given is None else int(given)
    age_ms = int(time.time() * 1000) - oldest_ms
    if 0 <= retention_ms < age_ms:
        source = (
            f"{RETENTION} is {given}" if given else f"{RETENTION} is not set, and is 7 days unless the brokers say so"
        )
        plan.notes.append(
            f"{plan.topic}: its oldest record is {age_ms // DAY_MS} days old and {source}: the cluster will delete "
            f"such records again; --config {RETENTION}=-1 keeps them"
        )
