"""`klamm quorum recover`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from klamm.cli.framework.options import Argument, Option
from klamm.cli.recovery.execution import backups, carry_out, locked
from klamm.cli.recovery.locations import Interrupted, close_stage, find_interrupted, put_in_place
from klamm.cli.recovery.plan import Plan, make_plan
from klamm.cli.recovery.survivors import directory_of, read_survivor
from klamm.cli.terminal.output import AsJson, print_json, print_table
from klamm.metadata.log.moments import iso_text, time_text
from klamm.metadata.rendering.descriptions import ids_text


def recover(
    nodes: Annotated[
        list[Path],
        Argument(metavar="NODE...", help="Log directories or configuration files of all remaining nodes."),
    ],
    *,
    apply: Annotated[bool, Option("--apply", help="Apply the changes. Without it they are only shown.")] = False,
    backup: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Where to keep a backup of the replaced files; next to each log directory by default."
        ),
    ] = None,
    accept_loss: Annotated[
        bool, Option("--accept-loss", help="Accept that records of damaged logs are lost, and use the intact part.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Form a new quorum from the remaining nodes after a majority of the voters is lost permanently.

    Stop the nodes first. Takes the longest log of all named nodes, by epoch
    and offset, and makes the voters among them a quorum of their own. Records
    that only the lost voters had are lost. Name brokers too: their copy of the
    log may be the longest. Shows what it would do. With --apply it does it,
    and completes what an interrupted call began.

    A damaged log is refused unless --accept-loss is given; then the part
    before the damage is used. This also makes a damaged sole voter start.

    \b
    [bold]Examples[/bold]
      klamm quorum recover server.properties
      klamm quorum recover /data/controller-1 /data/broker-4
      klamm quorum recover /data/controller-1 --apply
      klamm quorum recover --accept-loss /data/klamm --apply
    """
    directories = [directory_of(path) for path in nodes]
    earlier = find_interrupted(directories)
    with locked([*directories, *(earlier.directories if earlier else ())]):
        # Again under the lock: no other process can change anything from here on.
        earlier = find_interrupted(directories)
        if earlier is not None and earlier.is_begun:
            _end(earlier, apply=apply, as_json=as_json)
            return
        if earlier is not None and apply:
            for directory in earlier.directories:
                close_stage(directory)
        plan = make_plan([read_survivor(path, accept_loss=accept_loss) for path in nodes])
        fields = _fields(plan, applied=apply)
        if earlier is not None:
            done = "were" if apply else "will be"
            fields["warnings"].append(f"an earlier recovery ended before it changed anything; its files {done} removed")
        if apply:
            now_s = time.time()
            kept = backups(plan, backup, now_s)
            fields["kept"] = list(map(str, kept.values()))
            note = fields | {"directories": [str(one.directory.resolve()) for one in plan.targets]}
            carry_out(plan, kept, note, int(now_s * 1000))
    if as_json:
        print_json(fields)
    else:
        _print(plan)
        _print_result(fields)


def _end(earlier: Interrupted, *, apply: bool, as_json: bool) -> None:
    """Complete a recovery that was interrupted after some logs were already replaced."""
    if apply:
        put_in_place(earlier.directories)
    fields = {**earlier.note, "applied": apply, "interrupted": True}
    if as_json:
        print_json(fields)
        return
    done = "is complete now" if apply else "must be completed first, with --apply"
    print(f"an earlier recovery was interrupted while it replaced logs; it {done}:")
    for directory in earlier.directories:
        print(f"  - {directory}")
    _print_result(fields)


def _fields(plan: Plan, *, applied: bool) -> dict[str, Any]:
    return {
        "applied": applied,
        "cluster_id": plan.cluster_id,
        "chosen": {
            "node": plan.chosen.key.id,
            "directory": str(plan.chosen.directory),
            "end_offset": plan.chosen.end.offset,
            "last_epoch": plan.chosen.end.epoch,
            "last_time": iso_text(plan.chosen.last_time_ms),
        },
        "old_voters": list(plan.old_voters.ids),
        "new_voters": list(plan.new_voters.ids),
        "lost": list(plan.lost),
        "kraft_version": plan.kraft_version,
        "epoch": plan.epoch,
        "warnings": list(plan.warnings),
        "kept": [],
        "next": _next_steps(plan),
    }


def _print(plan: Plan) -> None:
    chosen = plan.chosen
    rows = [
        (one.key.id, one.end.offset, one.end.epoch, one.election.epoch, one.directory)
        for one in (*plan.targets, *([] if chosen in plan.targets else [chosen]))
    ]
    print_table(("#NODE", "#LOG END", "#LAST EPOCH", "#EPOCH", "DIRECTORY"), rows)
    print(
        f"\nthe longest log is that of node {chosen.key.id}: it ends at offset {chosen.end.offset} in epoch "
        f"{chosen.end.epoch}, {time_text(chosen.last_time_ms)}"
    )
    print(f"voters: {ids_text(plan.old_voters.ids)} -> {ids_text(plan.new_voters.ids)}, from epoch {plan.epoch} on")
    whose = f"{ids_text(plan.lost)} committed" if plan.lost else "was committed"
    print(
        f"may be lost: whatever {whose} from offset {chosen.end.offset} on; "
        "records here that were never committed become committed"
    )


def _print_result(fields: Mapping[str, Any]) -> None:
    for warning in fields["warnings"]:
        print(f"note: {warning}")
    for path in fields["kept"]:
        print(f"kept: {path}")
    print("\ndone. What is left to do:" if fields["applied"] else "\nnothing was changed: --apply does it. Then:")
    for step in fields["next"]:
        print(f"  - {step}")


def _next_steps(plan: Plan) -> list[str]:
    steps = []
    if plan.lost:
        steps.append(
            f"never start {ids_text(plan.lost)} again with the directories that they had: "
            "reformat them, then let them join"
        )
    if plan.kraft_version == 0 and plan.lost:
        known = [
            f"{one}@{plan.static_voters[one][0]}:{plan.static_voters[one][1]}"
            for one in plan.new_voters.ids
            if one in plan.static_voters
        ]
        value = ",".join(known) if len(known) == len(plan.new_voters) else f"only {ids_text(plan.new_voters.ids)}"
        steps.insert(0, f"set controller.quorum.voters on every node, brokers too: {value}")
    steps.append(f"start {ids_text(plan.new_voters.ids)}, then restart every broker")
    return steps
