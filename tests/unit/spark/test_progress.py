"""The lag of a query, from its progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.progress import offsets_behind_latest

END = {"a": {"0": 6, "1": 10}, "b": {"0": 1}}
LATEST = {"a": {"0": 16, "1": 10}, "b": {"0": 3}}


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"batchId": 3, "sources": [{"description": "x", "endOffset": end, "latestOffset": latest}]}


def test_lag_by_partition() -> None:
    (found,) = offsets_behind_latest(progress(json.dumps(END), json.dumps(LATEST)))
    assert found.partitions == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 0, TopicPartition("b", 0): 2}
    assert (found.total, found.largest, found.smallest, found.average) == (12, 10, 0, 4.0)


def test_parsed_progress() -> None:
    assert offsets_behind_latest(progress(END, LATEST))[0].total == 12


def test_the_initial_offsets_are_no_topic() -> None:
    (found,) = offsets_behind_latest(progress({**END, "@initial": {"a": {"0": 0}}}, LATEST))
    assert found.total == 12


def test_partitions_created_or_deleted_since() -> None:
    (found,) = offsets_behind_latest(progress({"a": {"0": 5, "1": 5}}, {"a": {"0": 7, "2": 9}}))
    assert found.partitions == {TopicPartition("a", 0): 2}


def test_an_end_that_decreased_is_no_lag() -> None:
    (found,) = offsets_behind_latest(progress({"a": {"0": 5}}, {"a": {"0": 2}}))
    assert found.largest == 0


@pytest.mark.parametrize("latest", [None, "", "7", "[1]", '{"rows": 8}', '{"a": {"zero": 1}}'])
def test_other_sources_are_omitted(latest: str | None) -> None:
    assert offsets_behind_latest(progress(json.dumps(END), latest)) == []


def test_before_the_first_batch() -> None:
    assert offsets_behind_latest(None) == []


def test_no_partitions() -> None:
    (found,) = offsets_behind_latest(progress("{}", "{}"))
    assert (found.total, found.largest, found.smallest, found.average) == (0, 0, 0, 0)
