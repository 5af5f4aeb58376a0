"""Ten million records to Parquet and back: the topic is equal. `-s` prints time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klamm
from klamm.client import KafkaClient
from klamm.pipelines.archive import archive, restore, verify
from tests.spark.archives import assert_identical, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

RECORDS = int(os.environ.get("KLAMM_ARCHIVE_RECORDS", "10000000"))
PARTITIONS = 4


def test_a_topic_of_ten_million_records_is_restored_identically(
    spark: SparkSession, bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(PARTITIONS)
    with KafkaClient(bootstrap) as source:
        for partition in range(PARTITIONS):
            fill(source, name, partition, RECORDS // PARTITIONS)
        source.flush()
        took: dict[str, float] = {}

        def timed(what: str, since_s: float) -> None:
            took[what] = time.monotonic() - since_s

        began = time.monotonic()
        archived = archive([name], tmp_path / "kept", bootstrap=bootstrap, spark=spark)
        timed("archive", began)
        assert archived.records == RECORDS

        began = time.monotonic()
        assert verify(tmp_path / "kept", spark=spark).records == RECORDS
        timed("verify", began)

        with klamm.Cluster() as elsewhere:
            began = time.monotonic()
            restored = restore(tmp_path / "kept", bootstrap=elsewhere.bootstrap_servers, apply=True, spark=spark)
            timed("restore", began)
            assert restored.written == RECORDS
            with KafkaClient(elsewhere.bootstrap_servers) as target:
                compared = sum(
                    assert_identical(source, target, name, name, partition=partition) for partition in range(PARTITIONS)
                )
            assert compared == RECORDS
    rates = ", ".join(f"{what} {seconds:.1f} s ({RECORDS / seconds / 1e6:.2f} M/s)" for what, seconds in took.items())
    print(f"\n{RECORDS} records of 100 B, {archived.bytes / 1e6:.0f} MB in {archived.files} files: {rates}")
