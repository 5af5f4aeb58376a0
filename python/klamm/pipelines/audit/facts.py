"""The content of a log's records by type, which questions read. Plain Python, by offset.

A row is a dict of the record's fields, with the columns of every table beside them: snapshot, offset, batch, epoch, and
`time_ms` instead of a timestamp.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipelines.audit.parts import Part
from klamm.pipelines.audit.reading import RowFilter, rows_of
from klamm.pipelines.audit.tables import RECORD_TYPES
from klamm.raft.log import control_records

Row = dict[str, Any]


class Extent(NamedTuple):
    """Which records count, and when the log ends."""

    base_end: int
    """The first offset of the log after the base snapshot."""
    withheld: tuple[tuple[int, int], ...]
    """Offsets `[first, last]` of metadata transactions that do not count (KIP-868)."""
    end_time_ms: int
    """The newest timestamp of all records."""


class Share(NamedTuple):
    """The topics whose id has this number modulo the number of shares."""

    number: int
    of: int

    def has(self, topic_id: str) -> bool:
        """Whether the topic is one of them."""
        return self.of == 1 or zlib.crc32(topic_id.encode()) % self.of == self.number


WHOLE = Share(0, 1)


class Epoch(NamedTuple):
    """An epoch of the quorum in the log."""

    epoch: int
    last_offset: int
    last_time_ms: int


class Facts:
    """The records of the base snapshot and of the log after it. They are read on first use."""

    def __init__(self, base: Sequence[Part], log: Sequence[Part], extent: Extent, share: Share = WHOLE) -> None:
        self._base = base
        self._log = log
        self.extent = extent
        self.share = share
        self._rows: dict[str, list[Row]] = {}
        self.kept: dict[str, Any] = {}
        """Results that several questions use, by name."""

    def rows(self, name: str) -> list[Row]:
        """The records of a type that count. Records of partitions: only for the topics of this share."""
        if name not in self._rows:
            wanted = RowFilter(record_type=RECORD_TYPES[name])
            log = [part for part in self._log if part.end_offset > self.extent.base_end]
            batches = [batch for part in (*self._base, *log) for batch in rows_of(part, wanted)]
            table = pa.Table.from_batches(batches, wanted.schema())
            self._rows[name] = _to_rows(self._of_share(table.filter(self._counts(table)), name))
        return self._rows[name]

    def leader_changes(self) -> list[Row]:
        """The LeaderChangeMessages of the log alone."""
        wanted = RowFilter(controls=(control_records.LEADER_CHANGE,))
        table = pa.Table.from_batches([batch for part in self._log for batch in rows_of(part, wanted)], wanted.schema())
        places = ["offset", "batch", "epoch", "timestamp", "fields"]
        return [{**row, **json.loads(row["fields"])} for row in _to_rows(table.select(places))]

    def epochs(self) -> list[Epoch]:
        """The epochs of the log alone, ascending."""
        wanted = RowFilter(is_epochs=True)
        found: dict[int, Epoch] = {}
        for part in self._log:
            for batch in rows_of(part, wanted):
                epochs, offsets = batch["epoch"].to_pylist(), batch["last_offset"].to_pylist()
                for epoch, offset, time_ms in zip(epochs, offsets, _in_ms(batch["last_time"]).to_pylist(), strict=True):
                    found[epoch] = Epoch(epoch, offset, time_ms)
        return [found[epoch] for epoch in sorted(found)]

    def counts(self) -> dict[str, int]:
        """How many records of each type the log alone has, the most frequent first."""
        wanted = RowFilter(is_counts=True)
        found: dict[str, int] = {}
        for part in self._log:
            for batch in rows_of(part, wanted):
                for name, records in zip(batch["type"].to_pylist(), batch["records"].to_pylist(), strict=True):
                    found[name] = found.get(name, 0) + records
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))

    def _counts(self, table: pa.Table) -> pa.Array:
        is_of_snapshot = pc.is_valid(table["snapshot"])
        counts = pc.greater_equal(table["offset"], self.extent.base_end)
        for first, last in self.extent.withheld:
            withheld = pc.and_(pc.greater_equal(table["offset"], first), pc.less_equal(table["offset"], last))
            counts = pc.and_(counts, pc.invert(withheld))
        return pc.or_(is_of_snapshot, counts)

    def _of_share(self, table: pa.Table, name: str) -> pa.Table:
        if self.share.of == 1 or name not in ("PartitionRecord", "PartitionChangeRecord"):
            return table
        ids = [one for one in table["topic_id"].unique().to_pylist() if self.share.has(one)]
        return table.filter(pc.is_in(table["topic_id"], pa.array(ids, pa.string())))


def _to_rows(table: pa.Table) -> list[Row]:
    at = table.schema.names.index("timestamp")
    with_ms = table.set_column(at, "time_ms", _in_ms(table["timestamp"]))
    rows: list[Row] = with_ms.to_pylist()
    return rows


def _in_ms(times: Any) -> Any:
    return pc.divide(times.cast(pa.int64()), 1000)
