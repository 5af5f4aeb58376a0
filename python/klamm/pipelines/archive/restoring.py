"""`restore`: the driver's part. It plans, starts and completes; a Spark task writes each partition."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.admin import groups as group_admin
from klamm.admin.client import Client
from klamm.client import ClientError
from klamm.pipelines.archive.cluster import cluster_id
from klamm.pipelines.archive.manifest import Manifest
from klamm.pipelines.archive.mapping import forget_runs, read_runs
from klamm.pipelines.archive.producing import CompareTask, Part, RestoreTask
from klamm.pipelines.archive.running import NO_PROGRESS, Progress, run_tasks
from klamm.pipelines.archive.state import State, Target, read_state, write_state
from klamm.pipelines.archive.store import OWN, locked, read_manifest
from klamm.pipelines.archive.targets import Cluster, RestoreSettings, TopicPlan, begin, end, intended, parts, plan_topic
from klamm.pipelines.archive.verifying import check_files, names_in
from klamm.pipelines.errors import PipelineError
from klamm.pipelines.session import session
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.cluster_view import connect
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.options import SourceOptions, parse_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = -1
LOOKED_AT_EVERY_S = 1.0
REQUEST_BYTES_MAX = str(1 << 29)
"""A record may be as large as in the source; the topic's max.message.bytes limits it."""


@dataclass(slots=True)
class Restored:
    """The result of a call, or its plan."""

    applied: bool
    state: Path
    """The folder with the mapping of offsets."""
    topics: list[TopicPlan]
    written: int = 0
    """Records that this call wrote."""
    groups: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    """Committed new offsets, by group, topic and partition."""

    @property
    def records(self) -> int:
        """The records of everything that is restored."""
        return sum(plan.records for plan in self.topics)


def restore(
    folder: str | Path,
    *,
    bootstrap: str,
    topics: Sequence[str] | None = None,
    apply: bool = False,
    rename: Mapping[str, str] | None = None,
    into_existing: bool = False,
    configs: Mapping[str, str] | None = None,
    replicas: int = -1,
    groups: bool = False,
    compare: bool = False,
    state: str | Path | None = None,
    client: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> Restored:
    """Restore archived topics to the same cluster or another; without `apply` only return the plan.

    An absent topic is created with its partitions and configs; an existing one must be empty, unless `into_existing`.
    Calling it again continues a call that was killed or failed, and restores what was archived since. `groups`: commit
    the archive's offsets of groups, translated. `compare`: read everything back. `state`: the folder for the mapping of
    offsets, by default in the archive, by cluster. Raises PipelineError, ClientError.
    """
    root = Path(folder).absolute()
    manifest = read_manifest(root)
    names = names_in(manifest, topics, root)
    settings = RestoreSettings(rename or {}, into_existing, configs or {}, replicas)
    _check_names(names, settings)
    keys = {"max.request.size": REQUEST_BYTES_MAX, **(client or {}), "bootstrap.servers": bootstrap}
    with Client(bootstrap, config=keys) as admin, _engine_errors(), connect(keys) as engine:
        place = Path(state).absolute() if state else root / OWN / "restores" / (cluster_id(admin) or "cluster")
        run = _Run(root, place, manifest, Cluster(admin, engine), settings)
        if not apply:
            return run.plan(names, applied=False)
        with locked(place, f"restore with state '{place}'"):
            done = run.plan(names, applied=True)
            with session("klamm restore", spark=spark, master=master, quiet=spark is None) as running:
                run.write(running, done, keys, compare, progress)
            if groups:
                done.groups = run.commit_groups(done)
    return done


def _check_names(names: Sequence[str], settings: RestoreSettings) -> None:
    if unknown := sorted(settings.rename.keys() - set(names)):
        raise PipelineError(
            f"--rename names topic '{unknown[0]}', which is not restored; there are: {', '.join(names)}"
        )
    targets = [settings.rename.get(name, name) for name in names]
    if twice := sorted(name for name in set(targets) if targets.count(name) > 1):
        raise PipelineError(f"two topics would be restored into '{twice[0]}': rename one of them to another name")


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except (ClientError, OptionError) as error:
        raise PipelineError(str(error)) from None


class _Run:
    """One call of `restore`."""

    def __init__(
        self, root: Path, place: Path, manifest: Manifest, cluster: Cluster, settings: RestoreSettings
    ) -> None:
        self._root = root
        self._place = place
        self._manifest = manifest
        self._cluster = cluster
        self._settings = settings
        self._state: State = {}

    def plan(self, names: Sequence[str], *, applied: bool) -> Restored:
        """The plan; changes nothing."""
        self._state = read_state(self._place)
        topics = [
            plan_topic(self._cluster, self._manifest, self._manifest.topics[name], self._state, self._settings)
            for name in names
        ]
        return Restored(applied, self._place, topics)

    def write(
        self, spark: SparkSession, done: Restored, keys: Mapping[str, str], compare: bool, progress: Progress
    ) -> None:
        """Check the files, create topics, and let Spark write the missing records."""
        todo = [plan for plan in done.topics if plan.written < plan.records]
        check_files(spark, self._root, self._manifest.files([plan.topic for plan in todo]), NO_PROGRESS)
        for plan in done.topics:
            if not plan.known:
                # The mapping belongs to a topic of that name that was restored before and deleted.
                forget_runs(self._place, plan.topic, plan.target)
                self._remember(plan, intended(plan))
            self._remember(plan, begin(self._cluster.admin, plan, self._settings.replicas))
        wanted = [part for plan in done.topics for part in parts(self._manifest, plan)]
        options = _options(done.topics, keys)
        with self._watched(wanted, progress):
            written = run_tasks(spark, RestoreTask(str(self._root), str(self._place), options), wanted)
        done.written = sum(written)
        # Brokers close connections that are idle for some minutes.
        self._cluster.admin.start_again()
        for plan in done.topics:
            end(self._cluster.admin, plan)
        if compare:
            wrong = [*filter(None, run_tasks(spark, CompareTask(str(self._root), options), wanted))]
            if wrong:
                raise PipelineError("; ".join(wrong))

    def _remember(self, plan: TopicPlan, target: Target) -> None:
        self._state[plan.target] = target
        write_state(self._place, self._state)

    @contextlib.contextmanager
    def _watched(self, wanted: Sequence[Part], progress: Progress) -> Iterator[None]:
        """Report the ends of the partitions while the job runs."""
        total = sum(part.records for part in wanted)
        stop = threading.Event()

        def look() -> int:
            done = 0
            for target in {part.target for part in wanted}:
                bases = {part.partition: part.base for part in wanted if part.target == target}
                found = self._cluster.engine.offsets(target, dict.fromkeys(bases, LATEST))
                done += sum(found[number] - base for number, base in bases.items())
            return done

        def watch() -> None:
            while not stop.wait(LOOKED_AT_EVERY_S):
                # The tasks report problems of the cluster.
                with contextlib.suppress(ClientError, KeyError):
                    progress(look(), total)

        watcher = threading.Thread(target=watch, name="klamm-restore-progress", daemon=True)
        if progress is not NO_PROGRESS:
            progress(0, total)
            watcher.start()
        try:
            yield
        finally:
            stop.set()
            if watcher.is_alive():
                watcher.join()
        progress(total, total)

    def commit_groups(self, done: Restored) -> dict[str, dict[str, dict[int, int]]]:
        """Commit the translated offsets of groups; returns them."""
        mappings = {
            plan.topic: (plan.target, read_runs(self._place, plan.topic, plan.target, plan.bases))
            for plan in done.topics
        }
        found: dict[str, dict[str, dict[int, int]]] = {}
        for group, offsets in sorted(self._manifest.groups.items()):
            wanted: dict[TopicPartition, int] = {}
            for (topic, partition), offset in sorted(offsets.items()):
                if topic in mappings:
                    target, mapping = mappings[topic]
                    new = wanted[TopicPartition(target, partition)] = mapping.translate(partition, offset)
                    found.setdefault(group, {}).setdefault(target, {})[partition] = new
            if wanted:
                group_admin.commit(self._cluster.admin, group, wanted)
        return found


def _options(topics: Sequence[TopicPlan], keys: Mapping[str, str]) -> SourceOptions:
    wanted = {plan.target: list(range(plan.partitions)) for plan in topics}
    options = {f"kafka.{key}": value for key, value in keys.items()}
    return parse_batch(options | {"assign": json.dumps(wanted), "includeHeaders": "true"})
