"""`klamm archive`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.pipelines.pipeline_options import ClientKeys, Master, archives, pairs, shown
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, print_json, print_table, say

if TYPE_CHECKING:
    from klamm.pipelines.archive import Archived, Verified


def archive(
    topics: Annotated[list[str] | None, Argument(metavar="[TOPIC]...", help="Topic names.")] = None,
    *,
    to: Annotated[Path, Option("--to", metavar="DIR", help="The directory of the archive; created if absent.")],
    pattern: Annotated[
        str | None,
        Option("--pattern", "-p", metavar="REGEX", help="Topics whose whole name matches; never internal topics."),
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Read the whole archive back. Without topics, only verify.")
    ] = False,
    groups: Annotated[bool, Option("--groups", help="Archive the committed offsets of groups too.")] = False,
    allow_loss: Annotated[
        bool,
        Option(
            "--allow-loss", help="Continue when retention deleted records before they were archived, and note the loss."
        ),
    ] = False,
    records_per_task: Annotated[
        int, Option(min=1, metavar="N", help="The largest number of offsets that a task reads into one file.")
    ] = 1_000_000,
    compression: Annotated[str, Option(help="The compression of the files: zstd, snappy, gzip, lz4 or none.")] = "zstd",
    client: ClientKeys = None,
    master: Master = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Archive topics as Parquet files, by topic and day; call it again to add new records.

    Spark reads the committed records up to the present end of each partition,
    each record once. A manifest lists the files of the archive with record
    counts and checksums. A call that is killed leaves the archive as it was,
    and the next call continues. All of Spark's executors must see the same
    directory. spark.read.parquet reads it as a table. Needs
    pip install 'klamm\\[spark]'.

    \b
    [bold]Examples[/bold]
      klamm archive orders --to /backup/kafka
      klamm archive --pattern 'orders-.*' --to /backup/kafka --groups --verify
      klamm archive --verify --to /backup/kafka
      klamm restore /backup/kafka --bootstrap elsewhere:9092
    """
    pipelines = archives()
    added = verified = None
    if topics or pattern is not None or not verify:
        with shown("archiving") as progress:
            added = pipelines.archive(
                topics or [],
                to,
                bootstrap=bootstrap,
                pattern=pattern,
                allow_loss=allow_loss,
                groups=groups,
                records_per_task=records_per_task,
                compression=compression,
                client=client_keys(command_config) | pairs("--client", client),
                master=master,
                progress=progress,
            )
    if verify:
        with shown("reading back") as progress:
            verified = pipelines.verify(to, master=master, progress=progress)
    if as_json:
        print_json(_archived_fields(to, added, verified))
    else:
        _print_archived(to, added, verified)


def _archived_fields(to: Path, added: Archived | None, verified: Verified | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"archive": str(to)}
    if added is not None:
        fields |= {
            "topics": list(added.topics),
            "records": added.records,
            "files": added.files,
            "bytes": added.bytes,
            "ranges": [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "start": one.start,
                    "end": one.end,
                    "records": one.records,
                    "lost": one.lost,
                }
                for one in added.ranges
            ],
        }
    if verified is not None:
        fields["verified"] = {
            "topics": list(verified.topics),
            "records": verified.records,
            "files": verified.files,
            "bytes": verified.bytes,
        }
    return fields


def _print_archived(to: Path, added: Archived | None, verified: Verified | None) -> None:
    if added is not None:
        rows = []
        for topic in added.topics:
            ranges = [one for one in added.ranges if one.topic == topic]
            files = [file for one in ranges for file in one.files]
            days = sorted({file.date for file in files})
            lost = sum(one.end - one.start for one in ranges if one.lost)
            rows.append(
                (
                    topic,
                    len({one.partition for one in ranges}),
                    sum(one.records for one in ranges),
                    len(files),
                    sum(file.bytes for file in files),
                    f"{days[0]} to {days[-1]}" if days else None,
                    lost,
                )
            )
        print_table(("TOPIC", "#PARTITIONS", "#RECORDS", "#FILES", "#BYTES", "DAYS", "#LOST"), rows)
        say(f"added to {to}: {added.records} records" if added.records else f"{to}: there was nothing new")
    if verified is not None:
        say(f"{to}: {verified.records} records in {verified.files} files are as they were written")
