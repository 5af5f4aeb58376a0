"""`klamm bench spark`: the same jobs over Spark's own Kafka connector and over klamm's, on the same broker."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import klamm
from klamm.admin import topics as topic_admin
from klamm.admin.client import Client
from klamm.client import KafkaClient
from klamm.pipelines.bench import side
from klamm.pipelines.bench.connector import ConnectorEnvironment, EnvironmentMissingError, default_folder
from klamm.pipelines.bench.side import Side
from klamm.pipelines.bench.workload import FULL, QUICK, Kind, Result, Run, Size, Workload, summarise, workloads
from klamm.spark.options.client_options import producer_options

if TYPE_CHECKING:
    from pyarrow import Array

CONNECTOR: Final = "connector"
_FILL_ROWS: Final = 10_000
_FILL_CLIENT: Final = {"batch.size": "16384"}
"""The default of the Java producer."""


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """What to compare, and where."""

    rounds: int = 3
    quick: bool = False
    bootstrap: str | None = None
    """None: a node of klamm's in this process, in a temporary folder."""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of TLS and SASL of that cluster's clients, by the names that Java's have: both sides get them."""
    kinds: tuple[Kind, ...] = tuple(Kind)
    partitions: int = 4
    cores: int = 2
    memory: str = "2g"
    with_engine: bool = False
    """Whether Spark's engine alone is measured, too: the ceiling of a data source in Python."""
    connector_folder: Path = field(default_factory=default_folder)
    sizes: tuple[Size, ...] | None = None
    """None: those of `quick`, or all."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's configuration on every side, in addition to ours."""

    def workloads(self) -> list[Workload]:
        """In the order in which they run."""
        return workloads(self.sizes or (QUICK if self.quick else FULL), self.kinds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results, and the versions that were compared."""

    results: list[Result]
    versions: dict[str, dict[str, str]]
    """Of Spark and Java, by side."""
    broker: str

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "broker": self.broker,
            "versions": self.versions,
            "results": [result.as_json() for result in self.results],
        }


def bench_spark(wanted: ComparisonSettings, say: Callable[[str], None] = lambda _: None) -> Comparison:
    """Run all rounds of all workloads, the sides in turn. Raises EnvironmentMissingError, SideFailedError.

    `say` receives progress messages. Every job's result is checked: as many rows as there are records.
    """
    _check_own_environment()
    environment = ConnectorEnvironment(wanted.connector_folder)
    environment.make(say)
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-", ignore_cleanup_errors=True))
        )
        broker = stack.enter_context(_broker(wanted))
        say("two Sparks start")
        started = [side.ours(_config(wanted)), side.connector(_config(wanted), environment)]
        if wanted.with_engine:
            started.append(side.engine(_config(wanted)))
        sides = [stack.enter_context(Side(one, folder / f"{one.name}.log")) for one in started]
        runs = list(_Rounds(wanted, broker, sides, folder, say).all())
        where = f"klamm {klamm.__version__}, in this process" if broker.is_ours else broker.bootstrap
        return Comparison(summarise(runs, CONNECTOR), {one.name: one.versions for one in sides}, where)


def _check_own_environment() -> None:
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise EnvironmentMissingError(f"{package} is not installed: pip install 'klamm[spark]'")
    if not Path("/proc/self/stat").exists():
        raise EnvironmentMissingError("this needs Linux, whose /proc tells what CPU and memory a side takes")


def _config(wanted: ComparisonSettings) -> dict[str, str]:
    return {
        "spark.master": f"local[{wanted.cores}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": wanted.memory,
        **wanted.conf,
    }


@dataclass(frozen=True, slots=True)
class _Broker:
    bootstrap: str
    is_ours: bool

    def cpu(self) -> float:
        return time.process_time() if self.is_ours else 0.0


@contextlib.contextmanager
def _broker(wanted: ComparisonSettings) -> Iterator[_Broker]:
    if wanted.bootstrap is not None:
        yield _Broker(wanted.bootstrap, False)
        return
    with klamm.Cluster() as cluster:
        yield _Broker(cluster.bootstrap_servers, True)


class _Rounds:
    """Runs the jobs, in topics of its own that it removes again."""

    def __init__(
        self,
        wanted: ComparisonSettings,
        broker: _Broker,
        sides: Sequence[Side],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._wanted, self._broker, self._sides, self._say = wanted, broker, sides, say
        self._folder = folder
        self._prefix = f"klamm-bench-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count()

    def all(self) -> Iterator[Run]:
        for size, of_size in itertools.groupby(self._wanted.workloads(), lambda workload: workload.size):
            with self._topic() as topic:
                self._say(f"{size}: filling a topic")
                self._fill(topic, size)
                for workload in of_size:
                    yield from self._workload(workload, topic)

    def _workload(self, workload: Workload, topic: str) -> Iterator[Run]:
        # Unmeasured: Java compiles, workers start, files come into the page cache.
        for one in self._sides:
            self._say(f"{workload}: warming up {one.name}")
            self._run(workload, one, topic)
        for number in range(self._wanted.rounds):
            order = self._sides if number % 2 == 0 else self._sides[::-1]
            for one in order:
                self._say(f"{workload}: round {number + 1} of {self._wanted.rounds}, {one.name}")
                yield self._run(workload, one, topic)

    def _run(self, workload: Workload, one: Side, topic: str) -> Run:
        with contextlib.ExitStack() as stack:
            target = stack.enter_context(self._topic()) if workload.kind is Kind.WRITE else topic
            job = self._job(workload, one, target)
            before = self._broker.cpu()
            answer, used = one.run(job)
            broker_cpu = self._broker.cpu() - before - used.watching if self._broker.is_ours else None
            rows = answer["rows"]
            if workload.kind is Kind.WRITE and one.format != "engine":
                rows = self._count(target)
        if rows is not None and rows != workload.size.records:
            raise side.SideFailedError(f"{workload}: {rows} records came of side {one.name}")
        return Run(workload, one.name, answer["seconds"], used.cpu, broker_cpu, used.jvm_rss, used.worker_rss)

    def _job(self, workload: Workload, one: Side, topic: str) -> dict[str, Any]:
        size = workload.size
        options = {"kafka.bootstrap.servers": self._broker.bootstrap}
        options |= {f"kafka.{key}": value for key, value in self._wanted.client.items()}
        match workload.kind:
            case Kind.WRITE:
                options["topic"] = topic
            case Kind.READ | Kind.STREAM:
                options |= {"subscribe": topic, "startingOffsets": "earliest"}
        if one.format == "engine":
            sizes = {"records": size.records, "recordBytes": size.record_bytes, "tasks": self._wanted.partitions}
            options = {name: str(number) for name, number in sizes.items()}
        return {
            "kind": workload.kind.value,
            "options": options,
            "checkpoint": str(self._folder / f"checkpoint-{next(self._numbers)}"),
            "records": size.records,
            "record_bytes": size.record_bytes,
            "tasks": self._wanted.partitions,
        }

    @contextlib.contextmanager
    def _topic(self) -> Iterator[str]:
        name = f"{self._prefix}-{next(self._numbers)}"
        with Client(self._broker.bootstrap, config=self._wanted.client) as client:
            topic_admin.create(client, [name], partitions=self._wanted.partitions)
        try:
            yield name
        finally:
            with Client(self._broker.bootstrap, config=self._wanted.client) as client:
                topic_admin.delete(client, [name])

    def _fill(self, topic: str, size: Size) -> None:
        keys, values = _columns(size)
        with KafkaClient(self._broker.bootstrap, producer_options(self._wanted.client) | _FILL_CLIENT) as client:
            for at in range(0, size.records, _FILL_ROWS):
                rows = min(_FILL_ROWS, size.records - at)
                client.produce(topic, None, keys.slice(0, rows), values.slice(0, rows))
            client.flush()

    def _count(self, topic: str) -> int:
        with KafkaClient(self._broker.bootstrap, producer_options(self._wanted.client)) as client:
            return sum(client.offsets(topic, dict.fromkeys(range(self._wanted.partitions), -1)).values())


def _columns(size: Size) -> tuple[Array, Array]:
    """Keys and values in the form that the writing jobs generate."""
    import pyarrow as pa

    keys = [b"%010d" % number for number in range(_FILL_ROWS)]
    pad = b"v" * (size.record_bytes - 2 * len(keys[0]))
    return pa.array(keys, pa.binary()), pa.array([pad + key for key in keys], pa.binary())
