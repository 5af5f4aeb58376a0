"""`klamm restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from klamm.cli.framework.command_config import CommandConfig, client_keys
from klamm.cli.framework.options import Argument, Option
from klamm.cli.pipelines.pipeline_options import ClientKeys, Master, archives, pairs, shown
from klamm.cli.terminal.output import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, print_json, print_table

if TYPE_CHECKING:
    from klamm.pipelines.archive import Restored

Rename = Annotated[
    list[str] | None, Option(metavar="OLD=NEW", help="Restore a topic under another name. May be repeated.")
]
IntoExisting = Annotated[bool, Option("--into-existing", help="Allow topics that already have records.")]
Configs = Annotated[
    list[str] | None,
    Option("--config", "-c", metavar="KEY=VALUE", help="A configuration of the created topics. May be repeated."),
]
Replicas = Annotated[
    int | None,
    Option(
        "--replicas", "-r", min=1, help="The replication factor; the broker's default.replication.factor by default."
    ),
]
Groups = Annotated[
    bool, Option("--groups", help="Commit the archived offsets of groups, translated to the new offsets.")
]
Compare = Annotated[bool, Option("--compare", help="Read the restored records back and compare them with the archive.")]
State = Annotated[
    Path | None,
    Option(metavar="DIR", help="Where to write the table of old and new offsets; the archive by default."),
]


def restore(
    folder: Annotated[Path, Argument(metavar="DIR", help="The directory of the archive.")],
    topics: Annotated[
        list[str] | None, Argument(metavar="[TOPIC]...", help="Topic names; all topics of the archive by default.")
    ] = None,
    *,
    apply: Annotated[bool, Option("--apply", help="Apply the changes. Without it they are only shown.")] = False,
    rename: Rename = None,
    into_existing: IntoExisting = False,
    config: Configs = None,
    replicas: Replicas = None,
    groups: Groups = False,
    compare: Compare = False,
    state: State = None,
    client: ClientKeys = None,
    master: Master = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Restore archived topics, to the same cluster or another.

    Keys, values, headers, timestamps, partitions and order are kept. Offsets
    become contiguous where the old ones had gaps; a Parquet table maps old
    offsets to new ones. An absent topic is created with its partitions and
    configs; a topic with records is refused unless --into-existing is given.
    Shows what it would do. With --apply it does it, and continues where an
    earlier call ended.

    \b
    [bold]Examples[/bold]
      klamm restore /backup/kafka
      klamm restore /backup/kafka --apply --compare
      klamm restore /backup/kafka orders --rename orders=old -c retention.ms=-1
      klamm restore /backup/kafka --bootstrap elsewhere:9092 --groups --apply
    """
    with shown("restoring") as progress:
        done = archives().restore(
            folder,
            bootstrap=bootstrap,
            topics=topics or None,
            apply=apply,
            rename=pairs("--rename", rename),
            into_existing=into_existing,
            configs=pairs("--config", config),
            replicas=replicas or -1,
            groups=groups,
            compare=compare,
            state=state,
            client=client_keys(command_config) | pairs("--client", client),
            master=master,
            progress=progress,
        )
    if as_json:
        print_json(_restored_fields(done))
    else:
        _print_restored(done)


def _restored_fields(done: Restored) -> dict[str, Any]:
    return {
        "applied": done.applied,
        "written": done.written,
        "mapping": str(done.state / "mapping"),
        "topics": [
            {
                "topic": plan.topic,
                "target": plan.target,
                "creates": plan.creates,
                "partitions": plan.partitions,
                "records": plan.records,
                "written_before": plan.written,
                "configs": plan.configs,
                "first_offsets": {str(number): base for number, base in plan.bases.items()},
                "notes": plan.notes,
            }
            for plan in done.topics
        ],
        "groups": done.groups,
    }


def _print_restored(done: Restored) -> None:
    rows = [
        (
            plan.topic,
            plan.target,
            "to be made" if plan.creates else "begun" if plan.known else "there",
            plan.partitions,
            plan.records,
            plan.written,
        )
        for plan in done.topics
    ]
    print_table(("TOPIC", "INTO", "WHICH IS", "#PARTITIONS", "#RECORDS", "#WRITTEN BEFORE"), rows)
    for note in (note for plan in done.topics for note in plan.notes):
        print(f"note: {note}")
    for group, topics in done.groups.items():
        print(f"group {group}: offsets committed for {', '.join(topics)}")
    if done.applied:
        print(f"\ndone: {done.written} records written. Old and new offsets: {done.state / 'mapping'}")
    else:
        print("\nnothing was changed: --apply does it")
