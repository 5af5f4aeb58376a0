"""A complete run of `klamm bench spark` with few records: every job of every side reads or writes all of them."""

from __future__ import annotations

import json

import pytest

from klamm.pipelines.bench import connector
from klamm.pipelines.bench.comparison import ComparisonSettings, bench_spark
from klamm.pipelines.bench.workload import Size
from tests.interop.secured_kafka import SecuredKafka, by_scram
from tests.spark.own_connector import FOLDER
from tests.support.foreign import give_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("broker", ["klamm", "Apache Kafka", "Apache Kafka with TLS and SASL"])
def test_all_jobs_of_all_sides(java: None, broker: str, request: pytest.FixtureRequest) -> None:
    if missing := connector.why_not():
        give_up(missing)
    bootstrap, keys = None, {}
    if broker != "klamm":
        node: SecuredKafka = request.getfixturevalue("secured_kafka")
        bootstrap = node.bootstrap
        if broker != "Apache Kafka":
            bootstrap, keys = node.address("SCRAM"), by_scram(node)
    wanted = ComparisonSettings(
        rounds=1,
        bootstrap=bootstrap,
        client=keys,
        with_engine=True,
        connector_folder=FOLDER,
        sizes=(Size(5000, 100),),
    )
    found = json.loads(json.dumps(bench_spark(wanted).as_json()))
    assert found["broker"].startswith(bootstrap or "klamm ")
    assert found["versions"]["connector"]["spark"] == connector.VERSION
    assert found["versions"]["klamm"]["spark"] == found["versions"]["engine"]["spark"]
    results = {(one["job"], one["side"]): one for one in found["results"]}
    assert results.keys() == {
        (job, side) for job in ("read", "write", "stream") for side in ("klamm", "connector", "engine")
    }
    for (_, side), one in results.items():
        assert one["records_per_second"] > 0
        assert (one["broker_cpu_seconds"] is None) == (bootstrap is not None)
        assert one["jvm_peak_rss_bytes"] > 1 << 20
        assert (one["worker_peak_rss_bytes"] > 0) == (side != "connector")
        assert (one["ratio"] is None) == (side == "connector")
