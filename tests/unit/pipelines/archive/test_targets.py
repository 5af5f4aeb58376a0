"""Warnings about a topic before it is restored."""

from __future__ import annotations

import time

import pytest

from klamm.pipelines.archive.manifest import Commit, DataFile, Manifest, Range, Topic
from klamm.pipelines.archive.targets import TopicPlan, _note, parts

DAY_MS = 86_400_000


def archived(age_ms: int) -> Manifest:
    at_ms = int(time.time() * 1000) - age_ms
    file = DataFile("topic=t/date=2026-01-31/00000-0-a.parquet", "2026-01-31", 3, 700, 0, 4, at_ms, at_ms, "")
    manifest = Manifest()
    lost = Range("t", 0, 5, 8, 0, lost=True)
    manifest.add(Commit(0, None, (Topic("t", None, 2, {}),), (Range("t", 0, 0, 5, 3, (file,)), lost)))
    return manifest


def planned(configs: dict[str, str], **changes: object) -> TopicPlan:
    plan = TopicPlan("t", "t", 2, 3, 0, True, configs, {0: 7, 1: 0}, {}, False)
    for name, value in changes.items():
        setattr(plan, name, value)
    return plan


@pytest.mark.parametrize(
    ("configs", "age_ms", "is_noted"),
    [
        ({"retention.ms": "-1"}, 900 * DAY_MS, False),
        ({"retention.ms": str(30 * DAY_MS)}, 20 * DAY_MS, False),
        ({"retention.ms": str(30 * DAY_MS)}, 40 * DAY_MS, True),
        ({}, 2 * DAY_MS, False),
        ({}, 8 * DAY_MS, True),
        ({"cleanup.policy": "compact"}, 900 * DAY_MS, False),
        ({"cleanup.policy": "compact,delete"}, 900 * DAY_MS, True),
    ],
)
def test_that_retention_would_delete_it_again(configs: dict[str, str], age_ms: int, is_noted: bool) -> None:
    plan = planned(configs)
    _note(archived(age_ms), plan)
    assert any("the cluster will delete such records again" in note for note in plan.notes) is is_noted
    assert "t: 3 offsets were lost before they were archived" in plan.notes


def test_that_log_append_times_stay_as_create_times() -> None:
    plan = planned({"retention.ms": "-1"}, afterwards={"message.timestamp.type": "LogAppendTime"})
    _note(archived(0), plan)
    assert any("message.timestamp.type is CreateTime until all is restored" in note for note in plan.notes)


def test_a_partition_without_records_has_no_task() -> None:
    (part,) = parts(archived(0), planned({}))
    assert (part.partition, part.base, part.records) == (0, 7, 3)
    assert [one.lost for one in part.ranges] == [False]
