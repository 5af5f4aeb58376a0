"""A user's job, run by the `python` of an environment that is not activated; prints what it read."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from klamm.spark import KlammDataSource

bootstrap, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(KlammDataSource)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.max.poll.records": "5"}
table = spark.read.format("klamm").options(**options).load()
versions = table.rdd.map(lambda row: (sys.executable, bytes(row.value).decode())).collect()
stream = spark.readStream.format("klamm").options(**options, startingOffsets="earliest").load()
query = stream.writeStream.format("memory").queryName("read").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
print(*sorted({python for python, _ in versions}), len(versions), spark.table("read").count())
spark.stop()
