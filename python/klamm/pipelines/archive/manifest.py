"""The content of an archive: its commits as JSON, and their sum. Pure.

Each commit adds ranges of offsets with their files. The ranges of a partition are contiguous, starting at its log start
offset when it was first archived: the next run continues at their end, and each offset is archived once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from klamm.pipelines.errors import PipelineError

FORMAT: Final = 1

Key = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file: records of one partition whose timestamps are of one day, by offset."""

    path: str
    """Relative to the archive's folder."""
    date: str
    records: int
    bytes: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    """The earliest and the latest timestamp."""
    checksum: str
    """`klamm.pipelines.archive.checksum`, with the offsets."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition. After compaction and transactions there are fewer records than offsets."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    files: tuple[DataFile, ...] = ()
    lost: bool = False
    """Whether retention deleted them before they were archived, and the run was allowed to continue."""

    @property
    def key(self) -> Key:
        """The partition of the range."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at the time when it was last archived."""

    name: str
    topic_id: str | None
    partitions: int
    configs: Mapping[str, str]
    """The configs that are set on the topic itself."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of an archive."""

    time_ms: int
    cluster_id: str | None
    topics: tuple[Topic, ...] = ()
    ranges: tuple[Range, ...] = ()
    groups: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None
    """The committed offsets of groups, by group, topic and partition; None: they were not requested."""


def encode(commit: Commit) -> bytes:
    """The commit as a file."""
    body = asdict(commit)
    return (json.dumps({"format": FORMAT, "checksum": _checksum(body), "commit": body}, indent=1) + "\n").encode()


def decode(data: bytes, name: str) -> Commit:
    """Parse the commit of a file; `name` is for the PipelineError."""
    try:
        found = json.loads(data)
        version, checksum, body = found["format"], found.get("checksum"), found.get("commit")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PipelineError(f"{name} is damaged: it is no commit of an archive; take this file from a copy") from None
    if version != FORMAT:
        raise PipelineError(
            f"{name} is of format {version}, written by a newer klamm; this one knows format {FORMAT}: upgrade klamm"
        )
    if checksum != _checksum(body):
        raise PipelineError(f"{name} is damaged: its checksum does not fit; take this file from a copy")
    return _commit(body)


def _commit(body: dict[str, Any]) -> Commit:
    return Commit(
        body["time_ms"],
        body["cluster_id"],
        tuple(Topic(**one) for one in body["topics"]),
        tuple(Range(**{**one, "files": tuple(DataFile(**file) for file in one["files"])}) for one in body["ranges"]),
        body["groups"],
    )


def _checksum(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@dataclass(slots=True)
class Manifest:
    """All commits of an archive together."""

    commits: int = 0
    cluster_id: str | None = None
    topics: dict[str, Topic] = field(default_factory=dict)
    ranges: dict[Key, list[Range]] = field(default_factory=dict)
    groups: dict[str, dict[Key, int]] = field(default_factory=dict)

    def add(self, commit: Commit) -> None:
        """Add the next commit. Raises PipelineError if a range does not continue the last one of its partition."""
        for topic in commit.topics:
            self.topics[topic.name] = topic
        for one in commit.ranges:
            before = self.ranges.setdefault(one.key, [])
            if before and before[-1].end != one.start:
                raise PipelineError(
                    f"the manifest is damaged: commit {self.commits + 1} has {one.topic}-{one.partition} from offset "
                    f"{one.start} on, and {before[-1].end} comes next"
                )
            before.append(one)
        for group, topics in (commit.groups or {}).items():
            known = self.groups.setdefault(group, {})
            for name, offsets in topics.items():
                known.update({(name, int(partition)): offset for partition, offset in offsets.items()})
        self.cluster_id = commit.cluster_id
        self.commits += 1

    def end(self, key: Key) -> int | None:
        """The next offset of a partition; None if nothing of it is archived."""
        ranges = self.ranges.get(key)
        return ranges[-1].end if ranges else None

    def files(self, topics: Iterable[str] | None = None) -> list[DataFile]:
        """All files, or those of some topics."""
        wanted = None if topics is None else frozenset(topics)
        return [
            file
            for (topic, _), ranges in sorted(self.ranges.items())
            if wanted is None or topic in wanted
            for one in ranges
            for file in one.files
        ]

    def records(self, topic: str) -> int:
        """The records of a topic."""
        return sum(one.records for key, ranges in self.ranges.items() if key[0] == topic for one in ranges)
