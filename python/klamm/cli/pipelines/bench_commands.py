"""`klamm bench`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.command_group import Group
from klamm.cli.framework.options import Option
from klamm.cli.pipelines.pipeline_options import pairs
from klamm.cli.terminal.output import AsJson, examples, is_terminal, print_json, print_table, say
from klamm.client import ClientError
from klamm.pipelines.bench.connector import default_folder

if TYPE_CHECKING:
    from klamm.pipelines.bench.comparison import Comparison
    from klamm.pipelines.bench.workload import Result

group = Group(
    examples("Compare speeds on this machine.", "klamm bench spark --quick", "klamm bench spark --rounds 5"),
)


@group.command("spark")
def spark(
    *,
    rounds: Annotated[int, Option(min=1, help="How often each job runs on each side, alternating.")] = 3,
    quick: Annotated[bool, Option("--quick", help="Use a twentieth of the records.")] = False,
    job: Annotated[
        list[str] | None, Option(metavar="read|write|stream", help="Run only this job. May be repeated.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        Option(
            "--bootstrap", "-b", metavar="HOST:PORT,...", help="Any broker of a cluster; a new klamm node by default."
        ),
    ] = None,
    command_config: CommandConfig = None,
    partitions: Annotated[int, Option(min=1, help="The number of partitions of each topic.")] = 4,
    cores: Annotated[int, Option(min=1, help="The number of tasks that Spark runs at once.")] = 2,
    engine: Annotated[
        bool, Option("--engine", help="Also measure Spark's engine alone: the ceiling of a Python data source.")
    ] = False,
    connector: Annotated[
        Path | None,
        Option(metavar="DIR", help="Where Spark's own connector is stored; the user's cache directory by default."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="A configuration key of every Spark session. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the same jobs with Spark's own Kafka connector and with klamm's.

    Batch read, batch write and a stream that catches up: 10 M records of 100 B
    and 1 M of 1 KiB. Needs klamm\\[spark], a JDK 17 and Maven, and 5 GB of disk.
    Spark's own connector is complete on Maven for Spark 4.0.0 only, klamm's
    needs Spark 4.2: each side runs the version that it needs, shown in the table.

    \b
    [bold]Examples[/bold]
      klamm bench spark --quick
      klamm bench spark --rounds 5 --engine
      klamm bench spark --bootstrap localhost:9092 --job read --json
    """
    from klamm.pipelines.bench.comparison import ComparisonSettings, bench_spark
    from klamm.pipelines.bench.workload import Kind

    known = {kind.value: kind for kind in Kind}
    if unknown := set(job or ()) - known.keys():
        raise ClientError(f"--job {min(unknown)}: say {', '.join(known)}")
    kinds = tuple(known[name] for name in job) if job else tuple(Kind)
    folder = connector or default_folder()
    wanted = ComparisonSettings(
        rounds,
        quick,
        bootstrap,
        client=client_keys(command_config) if bootstrap is not None else {},
        kinds=kinds,
        partitions=partitions,
        cores=cores,
        with_engine=engine,
        connector_folder=folder,
        conf=pairs("--conf", conf),
    )
    with _progress_lines() as report:
        found = bench_spark(wanted, report)
    if as_json:
        print_json(found.as_json())
    else:
        _show(found)


@contextlib.contextmanager
def _progress_lines() -> Iterator[Callable[[str], None]]:
    if not is_terminal(sys.stderr):
        yield say
        return
    from klamm.cli.terminal.styled import errors

    with errors.status("") as status:
        yield status.update


def _show(found: Comparison) -> None:
    sides = ", ".join(
        f"{name}: Spark {versions['spark']}, Java {versions['java']}" for name, versions in found.versions.items()
    )
    columns = ("JOB", "SIDE", "#RECORDS/S", "#MIN", "#MAX", "#RATIO", "#CPU S", "#CPU RATIO", "#BROKER CPU S")
    rows = [_row(result) for result in found.results]
    print_table((*columns, "#JVM MB", "#WORKER MB"), rows, title=f"{sides}; broker: {found.broker}")
    print("Medians of all rounds, RATIO of those that ran one after the other; memory is the peak.")


def _row(result: Result) -> tuple[object, ...]:
    return (
        str(result.workload),
        result.side,
        f"{result.rate:,.0f}",
        f"{min(result.rates):,.0f}",
        f"{max(result.rates):,.0f}",
        _times(result.ratio),
        f"{result.cpu:.1f}",
        _times(result.cpu_ratio),
        None if result.broker_cpu is None else f"{result.broker_cpu:.1f}",
        result.jvm_rss >> 20,
        result.worker_rss >> 20 or None,
    )


def _times(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.2f}x"
