"""Kafka topics as Spark tables and streams: `pip install "klamm[spark]"`, no connector jar.

from klamm.spark import KlammDataSource
spark.dataSource.register(KlammDataSource)
spark.read.format("klamm").option("kafka.bootstrap.servers", ...).option("subscribe", ...).load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.spark.source import KlammDataSource

__all__ = ["KlammDataSource"]

if not TYPE_CHECKING:  # for whom everything is above

    def __getattr__(name: str) -> object:
        """Options and offsets are plain Python; only the data source itself needs pyspark."""
        if name != "KlammDataSource":
            raise AttributeError(f"module 'klamm.spark' has no attribute '{name}'")
        try:
            from klamm.spark.source import KlammDataSource
        except ModuleNotFoundError as missing:
            if missing.name not in ("pyspark", "pyarrow"):
                raise
            raise ImportError(
                f"klamm's Spark source needs {missing.name}: pip install 'klamm[spark]'", name=missing.name
            ) from None
        return KlammDataSource
