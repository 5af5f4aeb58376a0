"""The output of `klamm groups` about the members of a group, and about their changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from klamm.admin.client import Client
from klamm.admin.membership import membership
from klamm.cli.terminal.output import print_table, say
from klamm.client import UnreachableError
from klamm.protocol.membership import CLASSIC, STREAMS, Member, Membership, Tasks
from klamm.protocol.topic_partition import TopicPartition

EVERY_S: Final = 1.0


def summary(group: Membership) -> str:
    """A line about the group."""
    parts = [f"{group.name}: {group.kind} group, {group.state}"]
    if group.assignor:
        parts.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        parts.append(f"epoch {group.epoch}")
        if group.assignment_epoch != group.epoch:
            parts.append(f"target of epoch {group.assignment_epoch}")
    return ", ".join(parts)


def print_members(group: Membership) -> None:
    """A table of the members; with epochs and targets if the group has them."""
    if not group.members:
        return
    columns = ["MEMBER", "INSTANCE", "CLIENT", "HOST"]
    if group.kind == CLASSIC:
        print_table([*columns, "ASSIGNED"], ((*_identity(one), in_words(one.assigned)) for one in group.members))
        return
    if group.kind == STREAMS:
        _print_streams_members(group, columns)
        return
    rows = ((*_identity(one), one.protocol, one.epoch, in_words(one.assigned), _target(one)) for one in group.members)
    print_table([*columns, "PROTOCOL", "#EPOCH", "ASSIGNED", "TARGET"], rows)


def _print_streams_members(group: Membership, columns: list[str]) -> None:
    rows = ((*_identity(one), one.process_id, one.epoch, *_tasks(one)) for one in group.members)
    print_table([*columns, "PROCESS", "#EPOCH", "ACTIVE", "STANDBY", "WARMUP", "TARGET"], rows)


def _tasks(member: Member) -> Iterator[str]:
    """Tasks by kind, then the target."""
    tasks, target = member.tasks, member.target_tasks
    yield from map(in_words, (tasks.active, tasks.standby, tasks.warmup))
    kinds = {"active": target.active, "standby": target.standby, "warmup": target.warmup}
    named = ", ".join(f"{kind} {in_words(partitions)}" for kind, partitions in kinds.items() if partitions)
    yield "as assigned" if tasks == target else named or "nothing"


def _identity(member: Member) -> tuple[str | None, ...]:
    return member.member_id, member.instance_id, member.client_id, member.host


def _target(member: Member) -> str:
    return "as assigned" if member.target == member.assigned else in_words(member.target)


def in_words(partitions: Iterable[TopicPartition]) -> str:
    """`orders-0..2,7 clicks-1`: the partitions of each topic, with ranges."""
    topics = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return " ".join(f"{topic}-{','.join(_ranges([one.partition for one in of]))}" for topic, of in topics) or "nothing"


def _ranges(indexes: Sequence[int]) -> Iterator[str]:
    start = 0
    for end in range(1, len(indexes) + 1):
        if end == len(indexes) or indexes[end] != indexes[end - 1] + 1:
            first, last = indexes[start], indexes[end - 1]
            yield str(first) if first == last else f"{first}..{last}"
            start = end


def membership_as_json(group: Membership) -> dict[str, Any]:
    """Everything about the group and its members."""
    return {
        "name": group.name,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member_as_json(one) for one in group.members],
    }


def _member_as_json(member: Member) -> dict[str, Any]:
    in_streams: dict[str, Any] = {}
    if member.protocol == STREAMS:
        in_streams = {
            "process_id": member.process_id,
            "tasks": _tasks_as_json(member.tasks),
            "target_tasks": _tasks_as_json(member.target_tasks),
        }
    return {
        "id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "subscribed": list(member.subscribed),
        "subscribed_regex": member.subscribed_regex,
        "assigned": [{"topic": topic, "partition": index} for topic, index in member.assigned],
        "target": [{"topic": topic, "partition": index} for topic, index in member.target],
        **in_streams,
    }


def _tasks_as_json(tasks: Tasks) -> dict[str, list[dict[str, Any]]]:
    kinds = {"active": tasks.active, "standby": tasks.standby, "warmup": tasks.warmup}
    return {
        kind: [{"subtopology": subtopology, "partition": index} for subtopology, index in of]
        for kind, of in kinds.items()
    }


def changes(before: Membership, after: Membership) -> Iterator[str]:
    """The changes between two descriptions of a group, one line each."""
    if summary(before) != summary(after):
        yield summary(after)
    old = {one.member_id: one for one in before.members}
    new = {one.member_id: one for one in after.members}
    for member_id in old.keys() - new.keys():
        yield f"- {_named(old[member_id])} left; it had {in_words(old[member_id].assigned)}"
    for member_id, member in new.items():
        was = old.get(member_id)
        if was is None:
            yield f"+ {_named(member)} joined; {_progress(member)}"
        elif _having(was) != _having(member):
            yield f"  {_named(member)}: {_progress(member)}"


def _having(member: Member) -> tuple[object, ...]:
    return member.assigned, member.target, member.tasks, member.target_tasks


def _named(member: Member) -> str:
    return member.member_id + (f" ({member.instance_id})" if member.instance_id else "")


def _progress(member: Member) -> str:
    has = f"has {in_words(member.assigned)}"
    return has if member.target == member.assigned else f"{has}, will have {in_words(member.target)}"


def follow_members(client: Client, group: Membership, *, as_json: bool) -> None:
    """Print the group, and then each change, without end."""
    if as_json:
        _print_json(group)
    else:
        say(summary(group))
        print_members(group)
        sys.stdout.flush()
    while True:
        time.sleep(EVERY_S)
        try:
            now = membership(client, group.name)
        except UnreachableError as error:
            say(f"{error}; waiting for it to come back")
            client.start_again()
            continue
        if now != group and as_json:
            _print_json(now)
        elif now != group:
            for line in changes(group, now):
                print(line)
            sys.stdout.flush()
        group = now


def _print_json(group: Membership) -> None:
    print(json.dumps(membership_as_json(group), ensure_ascii=False), flush=True)
