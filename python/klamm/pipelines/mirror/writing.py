"""A task of a micro-batch: writes the records of a partition to the target's, and reports their target offsets.

That is seen from the partition's ends before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipelines.mirror.syncs import Run, Written, joined
from klamm.spark.cluster_view import connect
from klamm.spark.sink.sink import produce

if TYPE_CHECKING:
    from klamm._engine.client import KafkaClient
    from klamm.pipelines.mirror.selection import Naming

READ: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
"""The columns that are read."""
RUNS_MAX: Final = 256
"""The maximum of runs of offsets without gaps that a task reports for a partition, evenly selected."""
LATEST: Final = -1


def write(
    client: Mapping[str, str], naming: Naming, batches: Iterable[pa.RecordBatch], left_out: Collection[str] = ()
) -> list[Written]:
    """Write all rows except those of topics that are left out, in order; they are acknowledged when this returns."""
    found: list[_Partition] = []
    with connect(client) as target:
        for batch in batches:
            if not batch.num_rows:
                continue
            # A task reads a range of one partition.
            topic, partition = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
            if topic in left_out:
                continue
            if not found or found[-1].place != (topic, partition):
                found.append(_Partition(topic, partition, _end(target, naming.target(topic), partition)))
            found[-1].take(batch)
            produce(target, naming.target(topic), batch)
        target.flush()
        return [one.written(_end(target, naming.target(one.topic), one.partition)) for one in found]


class _Partition:
    """The written offsets of a partition."""

    def __init__(self, topic: str, partition: int, revoke_before: int) -> None:
        self.topic = topic
        self.partition = partition
        self._end_before = revoke_before
        self._rows = 0
        self._first: int | None = None
        self._last = -1
        self._runs: list[Run] = []

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    def take(self, batch: pa.RecordBatch) -> None:
        """Count rows of this partition."""
        for name, value in (("topic", self.topic), ("partition", self.partition)):
            if pc.any(pc.not_equal(batch.column(name), value)).as_py():
                raise AssertionError(f"rows of {self.topic}-{self.partition} came together with others: {name}")
        offsets = batch.column("offset")
        if offsets[0].as_py() <= self._last:
            raise AssertionError(f"{self.topic}-{self.partition}: {offsets[0]} came after {self._last}")
        self._first = offsets[0].as_py() if self._first is None else self._first
        self._last = offsets[-1].as_py()
        self._runs = _sampled(joined([*self._runs, *_runs(offsets, self._rows)]))
        self._rows += batch.num_rows

    def written(self, end_after: int) -> Written:
        """Everything is acknowledged; the target partition ends at this offset."""
        assert self._first is not None
        return Written(
            self.topic,
            self.partition,
            self._rows,
            self._first,
            self._last,
            self._end_before,
            end_after,
            tuple(self._runs),
        )


def _runs(offsets: pa.Array, ordinal: int) -> list[Run]:
    """Runs without gaps of ascending offsets; the first is the `ordinal`th. At most RUNS_MAX."""
    count = len(offsets)
    breaks = pc.indices_nonzero(pc.not_equal(pc.subtract(offsets[1:], offsets[:-1]), 1)).cast(pa.int64())
    starts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(breaks, 1)])
    ends = pa.concat_arrays([pc.add(breaks, 1), pa.array([count], pa.int64())])
    chosen = pa.array(range(0, len(starts), -(-len(starts) // RUNS_MAX)), pa.int64())
    starts, ends = starts.take(chosen), ends.take(chosen)
    sources = offsets.take(starts).to_pylist()
    lengths = pc.subtract(ends, starts).to_pylist()
    return [
        Run(source, ordinal + start, length)
        for source, start, length in zip(sources, starts.to_pylist(), lengths, strict=True)
    ]


def _sampled(runs: list[Run]) -> list[Run]:
    """Every second run, beginning with the first, if there are too many."""
    return runs if len(runs) <= RUNS_MAX else runs[::2]


def _end(client: KafkaClient, topic: str, partition: int) -> int:
    return client.offsets(topic, {partition: LATEST})[partition]
