"""`format("klamm")`: Kafka topics in Spark, with the options and columns of Spark's own Kafka source.

For each stream, Spark starts a Python process that plans it, and waits for it. Imports that a stream of plain bytes
does not need are therefore local.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from klamm.spark.cluster_view import DRIVER_REFUSED_MS, check_reachable, connect
from klamm.spark.options.client_options import without_effect
from klamm.spark.options.format_options import HAVE_SCHEMAS, FormatOptions
from klamm.spark.options.options import SourceOptions, client_keys, parse_batch, parse_common, parse_stream
from klamm.spark.options.sink_options import parse_sink
from klamm.spark.reading.batch import KlammBatchReader, KlammFilteringReader
from klamm.spark.reading.columns import check_schema, full_schema
from klamm.spark.reading.stream import KlammStreamReader
from klamm.spark.workers import use_this_python

if TYPE_CHECKING:
    from klamm.spark.options.sink_options import SinkOptions
    from klamm.spark.reading.batch import KlammBatchReader
    from klamm.spark.reading.stream import KlammStreamReader
    from klamm.spark.sink.sink import KlammBatchWriter, KlammStreamWriter


_log = logging.getLogger(__name__)


class KlammDataSource(DataSource):
    """Topics as tables and streams: `spark.dataSource.register(KlammDataSource)`, then `format("klamm")`.

    The columns are those of Spark's own source. Spark requests all of them from a Python source; the option `columns`,
    such as `key,offset`, selects columns, and the others are not decoded at all.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format`, which Spark reads when the source is registered."""
        use_this_python()
        return "klamm"

    def schema(self) -> str:
        """All or the selected columns. Invalid options are refused here, before anything runs."""
        options = parse_common(self.options)
        connect(options.client).close()  # checks the client's keys without a connection
        return full_schema(self._pinned(options))

    def reader(self, schema: StructType) -> KlammBatchReader:
        """Reads a range of offsets that is fixed when the query is planned."""
        options = self._pinned(parse_batch(self.options))
        check_schema(schema, options)
        kind = KlammFilteringReader if _is_asked_for_filters() else KlammBatchReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> KlammStreamReader:  # noqa: N802
        """Continues at the offsets of the checkpoint."""
        options = self._pinned(parse_stream(self.options))
        check_schema(schema, options)
        return KlammStreamReader(options, schema)

    _pins: tuple[FormatOptions, FormatOptions] | None = None

    def _pinned(self, options: SourceOptions) -> SourceOptions:
        """The options with the schemas of keys and values, requested once.

        Spark serializes this object after it has read the columns, so that planners and readers use the same schemas.
        """
        if self._pins is None:
            self._warn(is_sink=False)
            self._pins = (_pin(options.key, options.topics), _pin(options.value, options.topics))
        key, value = self._pins
        return replace(options, key=key, value=value)

    _has_warned = False

    def _warn(self, *, is_sink: bool) -> None:
        """Log the options that have no effect once."""
        if self._has_warned:
            return
        self._has_warned = True
        given = client_keys({name.lower(): text for name, text in self.options.items()})
        if names := without_effect(given, is_sink=is_sink):
            _log.warning(
                "these options have no effect for klamm's Spark %s: %s",
                "sink" if is_sink else "source",
                ", ".join(f"kafka.{name}" for name in names),
            )

    def writer(self, schema: StructType, overwrite: bool) -> KlammBatchWriter:
        """Writes rows, at least once."""
        from klamm.spark.sink.sink import KlammBatchWriter

        writer = KlammBatchWriter(self._sink_options(overwrite, is_stream=False), schema)
        check_reachable(writer.options.client, DRIVER_REFUSED_MS)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> KlammStreamWriter:  # noqa: N802
        """Writes the rows of micro-batches, at least or exactly once."""
        from klamm.spark.sink.sink import KlammStreamWriter

        return KlammStreamWriter(self._sink_options(overwrite, is_stream=True), schema)

    def _sink_options(self, overwrite: bool, *, is_stream: bool) -> SinkOptions:
        options = parse_sink(self.options, overwrite, is_stream=is_stream)
        connect(options.client).close()
        self._warn(is_sink=True)
        return options


def _pin(options: FormatOptions, topics: Sequence[str] | None) -> FormatOptions:
    if options.format not in HAVE_SCHEMAS:
        return options
    from klamm.spark.formats.planning import pin

    return pin(options, topics)


_FILTER_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def _is_asked_for_filters() -> bool:
    """Whether this process plans a read with filters, as with `spark.sql.python.filterPushdown.enabled`.

    Without that setting, the default, Spark refuses a reader that has `pushFilters`. Python cannot read the setting,
    but the worker for reads with filters is a separate module.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _FILTER_WORKER in sys.modules or (main is not None and main.name == _FILTER_WORKER)
