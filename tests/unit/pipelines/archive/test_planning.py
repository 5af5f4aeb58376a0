from __future__ import annotations

import pytest

from klamm.pipelines.archive.manifest import Commit, Manifest, Range, Topic
from klamm.pipelines.archive.planning import check_same, plan
from klamm.pipelines.errors import PipelineError
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.ranges.offsets import OffsetRange


def archived_up_to(end: int) -> Manifest:
    manifest = Manifest()
    manifest.add(Commit(0, None, (), (Range("t", 0, 0, end, end),)))
    return manifest


def test_a_new_partition_begins_at_its_log_start_offset() -> None:
    found = plan(Manifest(), "t", {0: 5, 1: 0}, {0: 9, 1: 0}, allow_loss=False)
    assert found.ranges == [OffsetRange(TopicPartition("t", 0), 5, 9)]
    assert not found.lost


def test_an_archived_partition_continues_at_its_end() -> None:
    assert plan(archived_up_to(6), "t", {0: 2}, {0: 9}, allow_loss=False).ranges == [
        OffsetRange(TopicPartition("t", 0), 6, 9)
    ]
    assert not plan(archived_up_to(9), "t", {0: 9}, {0: 9}, allow_loss=False).ranges


def test_records_deleted_between_two_runs_are_reported() -> None:
    with pytest.raises(PipelineError, match=r"t-0 begins with offset 8, and the archive ends with 6: 2 offsets"):
        plan(archived_up_to(6), "t", {0: 8}, {0: 9}, allow_loss=False)
    found = plan(archived_up_to(6), "t", {0: 8}, {0: 9}, allow_loss=True)
    assert found.lost == [Range("t", 0, 6, 8, 0, lost=True)]
    assert found.ranges == [OffsetRange(TopicPartition("t", 0), 8, 9)]


@pytest.mark.parametrize("allow_loss", [False, True])
def test_a_log_that_ends_before_the_archive_is_refused(allow_loss: bool) -> None:
    with pytest.raises(PipelineError, match="t-0 ends with offset 4, and the archive has it up to 6"):
        plan(archived_up_to(6), "t", {0: 0}, {0: 4}, allow_loss=allow_loss)


def test_a_recreated_topic_is_rejected() -> None:
    check_same(None, "t", "a")
    check_same(Topic("t", "a", 1, {}), "t", "a")
    check_same(Topic("t", None, 1, {}), "t", "b")  # archived from brokers without topic ids
    with pytest.raises(PipelineError, match="topic 't' was deleted and made again"):
        check_same(Topic("t", "a", 1, {}), "t", "b")
