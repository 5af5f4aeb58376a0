"""The cost of Spark's engine alone: a Python data source with prepared Arrow batches, and a sink that drops them.

No Python data source can be faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

BATCH_ROWS = 65_536
_COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"


def register(session: SparkSession) -> None:
    """Registers `format("engine")`, with the options `records`, `recordBytes` and `tasks`."""
    session.dataSource.register(EngineFloor)


class EngineFloor(DataSource):
    """Reads rows with a Kafka source's columns from memory, and discards written rows."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "engine"

    def schema(self) -> str:
        """The columns of a Kafka source."""
        return _COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the same batch repeatedly."""
        return _Reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The same as a stream whose first batch has all rows."""
        return _StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Discards rows."""
        return _Writer()


class _Rows(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start, self.end = start, end


class _Ready:
    def __init__(self, schema: StructType, options: Any) -> None:
        self.schema = schema
        self.records, self.record_bytes = int(options["records"]), int(options["recordBytes"])
        self.tasks = int(options["tasks"])
        self.rows = int(options.get("batchRows", 10000))

    def ranges(self) -> list[InputPartition]:
        edges = [self.records * number // self.tasks for number in range(self.tasks + 1)]
        return [_Rows(start, end) for start, end in itertools.pairwise(edges)]

    def batches(self, wanted: _Rows) -> Iterator[pa.RecordBatch]:
        ready = _batch(self.record_bytes, to_arrow_schema(self.schema, timezone="UTC"))
        for at in range(wanted.start, wanted.end, self.rows):
            yield ready.slice(0, min(self.rows, wanted.end - at))


class _Reader(DataSourceReader):
    def __init__(self, schema: StructType, options: Any) -> None:
        self.ready = _Ready(schema, options)

    def partitions(self) -> list[InputPartition]:
        return self.ready.ranges()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        return self.ready.batches(partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, schema: StructType, options: Any) -> None:
        self.ready = _Ready(schema, options)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"rows": self.ready.records}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self.ready.ranges() if end["rows"] > start["rows"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        return self.ready.batches(partition)


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def _batch(record_bytes: int, schema: pa.Schema) -> pa.RecordBatch:
    numbers = range(BATCH_ROWS)
    keys = [b"%010d" % number for number in numbers]
    columns = {
        "key": keys,
        "value": [b"v" * (record_bytes - len(keys[0]))] * BATCH_ROWS,
        "topic": ["engine"] * BATCH_ROWS,
        "partition": [0] * BATCH_ROWS,
        "offset": list(numbers),
        "timestamp": [1_700_000_000_000_000] * BATCH_ROWS,
        "timestampType": [0] * BATCH_ROWS,
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)
