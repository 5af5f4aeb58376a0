"""A task: reads the records of a range of offsets into Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from klamm._engine.client import OffsetOutOfRangeError, TopicRecreatedError
from klamm.spark.cluster_view import connect
from klamm.spark.ranges.offsets import OffsetRange
from klamm.spark.reading.data_loss import DataLossError, report_loss
from klamm.spark.reading.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from klamm.spark.options.options import SourceOptions

BATCH_ROWS_MAX = 65_536
BATCH_BYTES_MAX = 8 << 20
"""The maximum size of an Arrow batch. A task holds one batch and one response of a broker in memory."""

_CLIENT = {"max.partition.fetch.bytes": str(4 << 20)}
"""An uncompressed response makes one batch: few large batches cost Spark's engine less."""


def read_range(
    options: SourceOptions, schema: StructType, wanted: OffsetRange, topic_id: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of the range. Offsets without records, in compacted or transactional topics, are skipped.

    `topic_id`: the id of the topic, if known. Raises DataLossError.
    """
    rows = Rows(options, to_arrow_schema(schema, timezone="UTC"))
    with connect({**_CLIENT, **options.client}) as client:
        at = wanted.start
        moved = time.monotonic()
        while at < wanted.end:
            try:
                fetched = client.fetch(
                    *wanted.partition,
                    at,
                    wanted.end,
                    columns=rows.fetched,
                    max_records=BATCH_ROWS_MAX,
                    max_bytes=BATCH_BYTES_MAX,
                    topic_id=topic_id,
                )
            except TopicRecreatedError as error:
                report_loss([f"partition {wanted.partition}, [{at}, {wanted.end}): {error}"], options.fail_on_data_loss)
                return
            except OffsetOutOfRangeError as error:
                at = _after_the_loss(error, at, wanted, options.fail_on_data_loss)
                continue
            if len(fetched):
                yield rows.of(pa.record_batch(fetched), wanted.partition)
            if fetched.next_offset > at:
                at, moved = fetched.next_offset, time.monotonic()
            elif (time.monotonic() - moved) * 1000 >= options.poll_timeout_ms:
                raise DataLossError(
                    f"partition {wanted.partition} returned no record from offset {at} on, before offset "
                    f"{wanted.end} was reached, within {options.poll_timeout_ms} ms (the option "
                    "kafkaConsumer.pollTimeoutMs)"
                )


def _after_the_loss(error: OffsetOutOfRangeError, at: int, wanted: OffsetRange, fail: bool) -> int:
    """The offset at which to continue if `at` is not in the partition."""
    found = f"[{error.earliest}, {error.latest})"
    report_loss([f"partition {wanted.partition} holds {found}, but [{at}, {wanted.end}) is needed"], fail)
    return wanted.end if error.latest <= at else max(at, min(error.earliest, wanted.end))
