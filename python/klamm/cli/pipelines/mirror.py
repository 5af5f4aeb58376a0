"""`klamm mirror`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from klamm.cli.framework.command_config import client_keys
from klamm.cli.pipelines.mirror_options import (
    AllowDataLoss,
    BatchRecords,
    Checkpoint,
    Exclude,
    ExcludedConfigs,
    GroupPatterns,
    Groups,
    Interval,
    Master,
    Names,
    Once,
    Patterns,
    Prefix,
    Rename,
    ReplicationFactor,
    Source,
    SourceConfig,
    SourceFile,
    SparkConf,
    Target,
    TargetConfig,
    TargetFile,
)
from klamm.cli.pipelines.pipeline_options import pairs
from klamm.cli.terminal.output import AsJson, print_json, print_table, say
from klamm.cli.terminal.styled import errors

if TYPE_CHECKING:
    from klamm.pipelines.mirror import MirrorOptions, MirrorProgress


def mirror(
    names: Names = None,
    *,
    source: Source,
    target: Target,
    checkpoint: Checkpoint,
    patterns: Patterns = None,
    exclude: Exclude = None,
    group: Groups = None,
    group_pattern: GroupPatterns = None,
    prefix: Prefix = "",
    rename: Rename = None,
    exclude_config: ExcludedConfigs = None,
    once: Once = False,
    allow_data_loss: AllowDataLoss = False,
    interval: Interval = 5,
    batch_records: BatchRecords = 1_000_000,
    replication_factor: ReplicationFactor = -1,
    source_config: SourceConfig = None,
    target_config: TargetConfig = None,
    source_file: SourceFile = None,
    target_file: TargetFile = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics to another cluster continuously, until Ctrl-C.

    Each record is copied at least once, in order, to the partition with the
    same number, with key, value, headers and timestamp. Topics, partitions and
    configs are created on the target and kept up to date. With --group, the
    offsets of a group without members on the target are translated: it can
    continue there without missing a record, and may read some again. After a
    restart the mirror continues. Records that came from the target itself are
    not copied back. Needs klamm\\[spark] and a JDK 17.

    \b
    [bold]Examples[/bold]
      klamm mirror orders --from a:9092 --to b:9092 --checkpoint state
      klamm mirror -p 'orders-.*' --from a:9092 --to b:9092 \\
        --checkpoint state --group-pattern '.*'
      klamm mirror -p '.*' --prefix eu. --from a:9092 --to b:9092 \\
        --checkpoint state --once --json
    """
    from klamm.pipelines import mirror as pipeline

    options = pipeline.MirrorOptions(
        source,
        target,
        str(checkpoint),
        pipeline.topics(names=names or [], patterns=patterns or [], excluded=exclude or []),
        pipeline.groups(names=group or [], patterns=group_pattern or []),
        pipeline.Naming(prefix, pairs("--rename", rename)),
        once=once,
        interval_s=interval,
        batch_records_max=batch_records,
        fail_on_data_loss=not allow_data_loss,
        replication_factor=replication_factor,
        excluded_configs=tuple(exclude_config or ()),
        source_config=client_keys(source_file) | pairs("--source-config", source_config),
        target_config=client_keys(target_file) | pairs("--target-config", target_config),
    )
    conf = pairs("--spark-conf", spark_conf)
    with _ended_by_sigterm(), _shown(as_json, options) as show:
        done = pipeline.mirror(options, master=master, conf=conf, on_progress=show, quiet=True)
    _print_end(done, as_json=as_json, once=once)


def _print_end(done: MirrorProgress, *, as_json: bool, once: bool) -> None:
    if as_json and once:
        print_json(_as_json(done))
    elif as_json:
        _print_line(done)
    else:
        print_table(["topic", "target", "#partitions", "#lag"], _rows(done))
        say(f"{done.records} records written")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: the current micro-batch is aborted, and repeated by the next start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _shown(as_json: bool, options: MirrorOptions) -> Iterator[Callable[[MirrorProgress], None]]:
    """Shows progress: a table on a terminal, otherwise lines; lines of JSON for programs."""
    if as_json:
        yield (lambda _: None) if options.once else _print_line
    elif errors.is_terminal:
        with Live(Text("starting Spark"), console=errors, transient=True) as live:
            yield lambda one: live.update(_table(one))
    else:
        yield _Lines().show


def _print_line(progress: MirrorProgress) -> None:
    print(json.dumps(_as_json(progress), ensure_ascii=False), flush=True)


class _Lines:
    """Prints a line when something has changed, for a log."""

    def __init__(self) -> None:
        self._last_line = ""

    def show(self, progress: MirrorProgress) -> None:
        text = f"{progress.records} records written, {progress.lag} behind in {len(progress.topics)} topics"
        text += f"; {progress.trouble}" if progress.trouble else ""
        if text != self._last_line:
            say(text)
        self._last_line = text


def _table(progress: MirrorProgress) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (("topic", "left"), ("target", "left"), ("partitions", "right"), ("lag", "right")):
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in _rows(progress):
        table.add_row(*(Text(str(cell)) for cell in row))
    table.caption = f"{progress.records} records written" + (f"; {progress.trouble}" if progress.trouble else "")
    return table


def _rows(progress: MirrorProgress) -> list[tuple[str, str, int, int]]:
    return [(one.topic, one.target, one.partitions, one.lag) for one in progress.topics]


def _as_json(progress: MirrorProgress) -> dict[str, Any]:
    return {
        "source": progress.source_id,
        "target": progress.target_id,
        "records": progress.records,
        "lag": progress.lag,
        "topics": [
            {"topic": one.topic, "target": one.target, "partitions": one.partitions, "lag": one.lag}
            for one in progress.topics
        ],
        "groups": [
            {
                "group": one.group,
                "has_members": one.has_members,
                "moved": [
                    {"topic": topic, "partition": partition, "offset": offset}
                    for (topic, partition), offset in sorted(one.offsets.items())
                ],
            }
            for one in progress.groups
        ],
        "left_out": list(progress.left_out),
        "trouble": progress.trouble,
    }
