"""How far behind a query is, from its progress."""

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


def test_what_is_behind_by_partition() -> None:
    (found,) = offsets_behind_latest(progress(json.dumps(END), json.dumps(LATEST)))
    assert found.partitions == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 0, TopicPartition("b", 0): 2}
    assert (found.total, found.largest, found.smallest, found.average) == (12, 10, 0, 4.0)


def test_progress_that_was_read_already() -> None:
    assert offsets_behind_latest(progress(END, LATEST))[0].total == 12


def test_the_initial_offsets_are_no_topic() -> None:
    (found,) = offsets_behind_latest(progress({**END, "@initial": {"a": {"0": 0}}}, LATEST))
    assert found.total == 12


def test_partitions_that_came_and_went_since() -> None:
    (found,) = offsets_behind_latest(progress({"a": {"0": 5, "1": 5}}, {"a": {"0": 7, "2": 9}}))
    assert found.partitions == {TopicPartition("a", 0): 2}


def test_an_end_that_went_back_is_not_behind() -> None:
    (found,) = offsets_behind_latest(progress({"a": {"0": 5}}, {"a": {"0": 2}}))
    assert found.largest == 0


@pytest.mark.parametrize("latest", [None, "", "7", "[1]", '{"rows": 8}', '{"a": {"zero": 1}}'])
def test_sources_that_are_not_kafka_are_left_out(latest: str | None) -> None:
    assert offsets_behind_latest(progress(json.dumps(END), latest)) == []


def test_before_the_first_batch() -> None:
    assert offsets_behind_latest(None) == []


def test_no_partitions() -> None:
    (found,) = offsets_behind_latest(progress("{}", "{}"))
    assert (found.total, found.largest, found.smallest, found.average) == (0, 0, 0, 0)
