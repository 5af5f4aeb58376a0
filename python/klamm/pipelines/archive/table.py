"""An archive as a Spark table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klamm.pipelines.archive.schema import spark_schema
from klamm.pipelines.archive.store import read_manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(folder: Path | str, spark: SparkSession) -> DataFrame:
    """The columns of `klamm.pipelines.archive.schema`, topic (string) and date (UTC). PipelineError if it is no
    archive.

    topic and date are in the files' paths, whose types Spark guesses without a schema: a topic `007` would be the
    number 7, and `1e3` the number 1000.0.
    """
    from pyspark.sql.types import DateType, StringType

    read_manifest(Path(folder))
    schema = spark_schema().add("topic", StringType()).add("date", DateType())
    return spark.read.schema(schema).parquet(str(folder))
