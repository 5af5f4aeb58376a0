"""Writes the rows of a query into topics.

The default is at least once: a task that is retried writes its rows again. Within a task no row is lost, duplicated or
out of order, because the client's producer is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm._engine.spark import digest_rows
from klamm.spark.cluster_view import TASK_REFUSED_MS, check_reachable, connect
from klamm.spark.options.option_map import OptionError
from klamm.spark.options.sink_options import Delivery, SinkOptions, check_columns
from klamm.spark.sink.sink_exactly_once import (
    Delivered,
    check_broker,
    finish,
    give_up,
    identity_of_task,
    is_first_batch,
    write_once,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from klamm._engine.client import KafkaClient


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The number of records that a task wrote."""

    records: int


class KlammBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, columns_of(schema))
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """All rows of a partition, acknowledged when this returns."""
        return write_all(self.options, iterator)


class KlammStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, columns_of(schema))
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | Delivered:
        """Like a DataFrame's writer; exactly once if configured."""
        # Spark creates a writer for every micro-batch, and only tasks know its number. Later batches wait for a
        # restart.
        if is_first_batch():
            self.check_cluster()
        if self.options.delivery is Delivery.AT_LEAST_ONCE:
            return write_all(self.options, iterator)
        portions = (portion for batch in iterator for portion in by_topic(batch, self.options.topic))
        return write_once(self.options, identity_of_task(), portions, produce, digest)

    def check_cluster(self) -> None:
        """Raise ClientError if no broker can be reached, OptionError if brokers do not support the guarantee."""
        if self.options.delivery is Delivery.EXACTLY_ONCE:
            check_broker(self.options)
        else:
            check_reachable(self.options.client, TASK_REFUSED_MS)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All tasks are done."""
        finish(self.options, (message for message in messages if isinstance(message, Delivered)))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed, or `commit`."""
        give_up(self.options, (message for message in messages if isinstance(message, Delivered)))


def columns_of(schema: StructType) -> dict[str, str]:
    """Names of columns and Spark's short names of their types."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def write_all(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Pass the rows to the client, which blocks while its buffer is full, and wait until all are acknowledged."""
    written = 0
    with connect(options.client) as client:
        for batch in batches:
            for topic, rows in by_topic(batch, options.topic):
                produce(client, topic, rows)
            written += batch.num_rows
        client.flush()
    return Written(written)


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic in order."""
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise OptionError("the column topic is null in a row: set the option topic, or filter such rows")
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))


_OPTIONAL: Final = ("partition", "key", "headers", "timestamp")


def produce(client: KafkaClient, topic: str, rows: pa.RecordBatch) -> None:
    """Pass rows of one topic to the client."""
    client.produce(topic, *_columns(rows))


def digest(topic: str, rows: pa.RecordBatch) -> int:
    """A checksum of the rows of one topic."""
    return digest_rows(topic, *_columns(rows))


def _columns(rows: pa.RecordBatch) -> tuple[object | None, ...]:
    has = {name: rows.column(name) for name in _OPTIONAL if name in rows.schema.names}
    return has.get("partition"), has.get("key"), rows.column("value"), has.get("headers"), has.get("timestamp")
