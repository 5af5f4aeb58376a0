"""A task of a restore: writes the archived records of one partition in order, each once.

Only the task writes to the partition, which a lock ensures, so the partition's end shows how many records have been
written: record number n of the archive has offset base + n. When a run starts or restarts, the task compares the
existing records with the archive, and continues after them. The engine's producer is idempotent, so a task writes no
duplicates either. Any other record in the partition is detected at the end of each range, and ends the restore.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm.client import KafkaClient
from klamm.pipelines.archive.checksum import Digest
from klamm.pipelines.archive.manifest import Range
from klamm.pipelines.archive.mapping import Run, file_of, joined, runs_of, write_runs
from klamm.pipelines.archive.reading import records_of
from klamm.pipelines.archive.schema import read
from klamm.pipelines.archive.store import locked
from klamm.pipelines.errors import PipelineError
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.cluster_view import connect
from klamm.spark.options.options import SourceOptions
from klamm.spark.ranges.offsets import OffsetRange

SETTLED_S: Final = 0.5
"""Records sent by a killed task may still arrive: the end offset must be unchanged for this long."""
LOCK_WAITED_S: Final = 60.0
COMPARED: Final = ("key", "value", "headers", "timestamp")
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Part:
    """A partition to restore."""

    topic: str
    target: str
    partition: int
    base: int
    ranges: tuple[Range, ...]
    begun: bool
    """Whether an earlier run may have written a part of it."""

    @property
    def records(self) -> int:
        """The number of its records in the archive."""
        return sum(one.records for one in self.ranges)

    @property
    def place(self) -> TopicPartition:
        """The target partition."""
        return TopicPartition(self.target, self.partition)


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """Shared by all tasks of a restore."""

    root: str
    state: str
    options: SourceOptions
    """Keys of the target cluster's client."""

    def __call__(self, part: Part) -> int:
        """Write the missing records of the partition; returns their number."""
        # A task may outlive its driver, or its executor's connection to the driver, by a moment.
        with (
            locked(Path(self.state) / "locks", f"partition {part.place}", name=str(part.place), wait_s=LOCK_WAITED_S),
            connect(self.options.client) as client,
        ):
            return _Restore(self, part, client).run()


class _Restore:
    """One partition that is being restored."""

    def __init__(self, task: RestoreTask, part: Part, client: KafkaClient) -> None:
        self._task = task
        self._part = part
        self._client = client
        self._next = part.base
        """The new offset of the next archived record."""
        self._found = self._settled_end() if part.begun or _is_another_attempt() else self._end()
        check_end(part, self._found)

    def run(self) -> int:
        for one in self._part.ranges:
            file = file_of(Path(self._task.state), self._part.topic, self._part.target, self._part.partition, one.start)
            if self._next + one.records <= self._found and file.exists():
                self._next += one.records
                continue
            write_runs(file, self._part.partition, self._write(one))
        return self._part.base + self._part.records - self._found

    def _write(self, one: Range) -> list[Run]:
        """Write the records of a range that the partition does not have; returns the mapping of the whole range."""
        runs: list[Run] = []
        first = self._next
        for batch in records_of(Path(self._task.root), one):
            joined(runs, runs_of(batch.column("offset"), self._next))
            there = min(max(self._found - self._next, 0), batch.num_rows)
            if there:
                self._compare(batch.slice(0, there))
            if there < batch.num_rows:
                self._produce(batch.slice(there))
            self._next += batch.num_rows
        if self._next - first != one.records:
            raise PipelineError(
                f"the archive has {self._next - first} records of {one.topic}-{one.partition} in offsets [{one.start}, "
                f"{one.end}), and its manifest says {one.records}: `klamm archive --verify` names the file"
            )
        if self._next > self._found:
            self._client.flush()
            end = self._end()
            if end != self._next:
                raise PipelineError(_not_alone(self._part, end, self._next))
        return runs

    def _produce(self, rows: pa.RecordBatch) -> None:
        part = self._part
        key, value, headers, timestamp = (rows.column(name) for name in COMPARED)
        self._client.produce(part.target, part.partition, key, value, headers, timestamp)

    def _compare(self, rows: pa.RecordBatch) -> None:
        """Raise PipelineError unless the partition has these records next; compacted records may be missing."""
        wanted = OffsetRange(self._part.place, self._next, self._next + rows.num_rows)
        options = replace(self._task.options, fail_on_data_loss=False)
        for found in read(options, wanted):
            same = rows.take(pc.subtract(found.column("offset"), self._next))
            if not all(found.column(name).equals(same.column(name)) for name in COMPARED):
                raise PipelineError(_not_alone(self._part, self._found, self._next))

    def _end(self) -> int:
        return self._client.offsets(self._part.target, {self._part.partition: LATEST})[self._part.partition]

    def _settled_end(self) -> int:
        """The end offset, after it has stopped changing."""
        end = self._end()
        while True:
            time.sleep(SETTLED_S)
            before, end = end, self._end()
            if end == before:
                return end


def check_end(part: Part, end: int) -> None:
    """Raise PipelineError if the partition ends before its start offset, or has more than was restored into it."""
    if not part.base <= end <= part.base + part.records:
        raise PipelineError(_not_alone(part, end, part.base + part.records))


def _not_alone(part: Part, end: int, expected: int) -> str:
    return (
        f"partition {part.place} has other records than were restored into it (it ends with offset {end}, at most "
        f"{expected} was expected): another program writes to it, or it was truncated; delete the topic, or give it "
        f"another name by --rename {part.topic}=NAME, and restore again"
    )


def _is_another_attempt() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Reads a restored partition back."""

    root: str
    options: SourceOptions

    def __call__(self, part: Part) -> str | None:
        """The first difference: every record must be as in the archive, in the same order."""
        archived, restored = Digest(COMPARED), Digest(COMPARED)
        for one in part.ranges:
            for batch in records_of(Path(self.root), one):
                archived.update(batch)
        for batch in read(self.options, OffsetRange(part.place, part.base, part.base + part.records)):
            restored.update(batch)
        if archived.text() == restored.text():
            return None
        return f"partition {part.place} has {restored.records} records, the archive {archived.records}, and they differ"
