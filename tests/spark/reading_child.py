"""The work of a task's worker as a program without Spark: reads a whole partition, and prints its memory.

python -m tests.spark.reading_child BOOTSTRAP TOPIC END
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
from pyspark.sql.types import StructType

from klamm.pipelines.bench.process_tree import forget_peak, peak_rss
from klamm.protocol.topic_partition import TopicPartition
from klamm.spark.options.options import parse_batch
from klamm.spark.ranges.offsets import OffsetRange
from klamm.spark.reading.columns import _TYPES
from klamm.spark.reading.reader import read_range


def main() -> None:
    bootstrap, topic, end = sys.argv[1:]
    options = parse_batch({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    schema = StructType()
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"):
        schema.add(name, _TYPES[name])
    # A small read first, to create connections and threads and to load modules.
    read(OffsetRange(TopicPartition(topic, 0), 0, 10), options, schema)
    forget_peak(os.getpid())
    before = peak_rss(os.getpid())
    rows = read(OffsetRange(TopicPartition(topic, 0), 0, int(end)), options, schema)
    print(json.dumps({"rows": rows, "peak": peak_rss(os.getpid()), "more": peak_rss(os.getpid()) - before}))


def read(wanted: OffsetRange, options: object, schema: StructType) -> int:
    """Write rows as an Arrow stream like Spark's worker; returns their number."""
    rows = 0
    writer = None
    with open(os.devnull, "wb") as nowhere:
        for batch in read_range(options, schema, wanted):  # type: ignore[arg-type]
            writer = writer or pa.RecordBatchStreamWriter(nowhere, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


if __name__ == "__main__":
    main()
