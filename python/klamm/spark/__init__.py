"""Kafka topics as Spark tables and streams: `pip install "klamm[spark]"`, no connector jar.

from klamm.spark import KlammDataSource
spark.dataSource.register(KlammDataSource)
spark.read.format("klamm").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()

If a job fails, `reason(error)` returns the sentence of Spark's exception that states the cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.spark.failures import reason
from klamm.spark.supported import check_pyspark

if TYPE_CHECKING:
    from klamm.spark.source import KlammDataSource

__all__ = ["KlammDataSource", "reason"]

if not TYPE_CHECKING:  # type checkers use the imports above

    def __getattr__(name: str) -> object:
        """Options and offsets are plain Python; only the data source needs pyspark."""
        if name != "KlammDataSource":
            raise AttributeError(f"module 'klamm.spark' has no attribute '{name}'")
        try:
            check_pyspark()
            from klamm.spark.source import KlammDataSource
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package not in ("pyspark", "pyarrow"):
                raise
            text = f"klamm's Spark source needs {package}: pip install 'klamm[spark]'"
            raise ImportError(text, name=package) from None
        return KlammDataSource
