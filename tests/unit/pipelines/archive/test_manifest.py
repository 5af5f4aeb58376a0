from __future__ import annotations

import json

import pytest

from klamm.pipelines.archive.manifest import Commit, DataFile, Manifest, Range, Topic, decode, encode
from klamm.pipelines.errors import PipelineError

FILE = DataFile("topic=t/date=2026-01-31/00000-0-a.parquet", "2026-01-31", 3, 700, 0, 4, 1, 2, "c0ffee")
TOPIC = Topic("t", "AAAAAAAAAAAAAAAAAAAAAQ", 2, {"retention.ms": "-1"})


def commit(start: int, end: int) -> Commit:
    return Commit(7, "cluster", (TOPIC,), (Range("t", 0, start, end, 3, (FILE,)),), {"g": {"t": {"0": 3}}})


def test_a_commit_round_trips() -> None:
    assert decode(encode(commit(0, 5)), "1.json") == commit(0, 5)


def test_a_newer_format_is_rejected_by_name() -> None:
    data = json.dumps({"format": 2, "else": "unknown"}).encode()
    with pytest.raises(PipelineError, match=r"/a/1\.json is of format 2, written by a newer klamm"):
        decode(data, "/a/1.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", encode(commit(0, 5)).replace(b"700", b"701")])
def test_a_damaged_manifest_is_rejected_by_name(data: bytes) -> None:
    with pytest.raises(PipelineError, match=r"1\.json is damaged"):
        decode(data, "1.json")


def test_a_partition_continues_at_the_end_of_its_last_range() -> None:
    manifest = Manifest()
    manifest.add(commit(0, 5))
    manifest.add(commit(5, 9))
    assert manifest.end(("t", 0)) == 9
    assert manifest.end(("t", 1)) is None
    assert manifest.records("t") == 6
    assert manifest.groups == {"g": {("t", 0): 3}}
    with pytest.raises(PipelineError, match="t-0 from offset 8 on, and 9 comes next"):
        manifest.add(commit(8, 12))
